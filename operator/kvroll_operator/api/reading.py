"""Reads a pool's spec as it comes from the API server, which may hold another version of the CRD."""

import copy
from typing import Any

from pydantic import ValidationError

from kvroll_operator.api.pool import PoolSpec

_MOST_ERRORS = 5


def read_spec(raw: Any) -> tuple[PoolSpec | None, str]:
    """The spec, and what is wrong with it, empty for nothing.

    A field that this version does not know is left out, and named: what it means is not known, so nothing new may be begun by such a spec,
    but what was begun can be looked after. With anything else wrong there is no spec at all.
    """
    try:
        return PoolSpec.model_validate(raw), ""
    except ValidationError as error:
        told = _told(error)
        unknown = [e["loc"] for e in error.errors(include_url=False) if e["type"] == "extra_forbidden"]
        if len(unknown) < error.error_count():
            return None, told
    known = copy.deepcopy(raw)
    for *parents, field in unknown:
        holder = known
        for name in parents:
            holder = holder[name]
        del holder[field]
    try:
        return PoolSpec.model_validate(known), told
    except ValidationError as error:
        return None, _told(error)


def _told(error: ValidationError) -> str:
    parts = [
        f"spec.{'.'.join(str(name) for name in e['loc'])}: "
        + ("a field that this version of the operator does not know" if e["type"] == "extra_forbidden" else e["msg"])
        for e in error.errors(include_url=False)
    ]
    more = f" and {len(parts) - _MOST_ERRORS} more" if len(parts) > _MOST_ERRORS else ""
    return "; ".join(parts[:_MOST_ERRORS]) + more
