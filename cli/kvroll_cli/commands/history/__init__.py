"""`kvroll history`: its arguments and its table; `rollback` and `retry` find their rollout by the same rows."""
