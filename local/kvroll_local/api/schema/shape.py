"""Pruning and defaulting: the object as a structural schema wants it."""

import copy
from typing import Any

Json = dict[str, Any]
_TYPE = ("apiVersion", "kind")


def shape(schema: Json, metadata: Json, body: Json) -> tuple[Json, list[str]]:
    """The object without unknown fields and with defaults filled in; and the paths of the fields that went.

    `metadata` is the schema of every object's metadata: that of a CRD says of it only what it narrows.
    """
    unknown: list[str] = []
    properties = {**schema.get("properties", {}), "metadata": metadata} | {name: {"type": "string"} for name in _TYPE}
    return _shaped({**schema, "properties": properties}, copy.deepcopy(body), "", unknown), unknown


def _shaped(schema: Json, value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, list):
        return [_shaped(schema.get("items", {}), item, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("type") not in ("object", None)
    made: Json = {}
    for key, part in value.items():
        where = f"{path}.{key}".lstrip(".")
        below = known.get(key, rest)
        if isinstance(below, dict):
            # A null that the schema does not allow means: unset.
            if part is not None or below.get("nullable") or "x-kubernetes-preserve-unknown-fields" in below:
                made[key] = _shaped(below, part, where, unknown)
        elif below or is_open:
            made[key] = part
        else:
            unknown.append(where)
    for key, part in known.items():
        if key not in made and "default" in part:
            made[key] = _shaped(part, copy.deepcopy(part["default"]), f"{path}.{key}", unknown)
    return made
