"""JSON merge patch (RFC 7386)."""

from typing import Any


def merge(live: Any, patch: Any) -> Any:
    """`live` with `patch` laid over it: null removes, lists are replaced whole."""
    if not isinstance(patch, dict):
        return patch
    made = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value)
    return made
