"""What speaks to the outside: the API server, the workers. Observes for `rollout/` and carries out its effects; decides nothing.

`main` and the tests import it; `rollout/` and `api/` may not.
"""
