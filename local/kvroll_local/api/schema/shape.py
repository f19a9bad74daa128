"""Pruning and defaulting: the object as a structural schema wants it."""

import copy
from typing import Any

Json = dict[str, Any]
_META = ("apiVersion", "kind", "metadata")


def shape(schema: Json, body: Json) -> tuple[Json, list[str]]:
    """The object without unknown fields and with defaults filled in; and the paths of the fields that went."""
    unknown: list[str] = []
    root = {**schema, "properties": {k: v for k, v in schema.get("properties", {}).items() if k not in _META}}
    made = {key: body[key] for key in _META if key in body}
    rest = {key: value for key, value in body.items() if key not in _META}
    return made | _shaped(root, copy.deepcopy(rest), "", unknown), unknown


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
        if key in known:
            # A null where a default stands and null is not allowed means: unset.
            if part is not None or known[key].get("nullable") or "default" not in known[key]:
                made[key] = _shaped(known[key], part, where, unknown)
        elif isinstance(rest, dict):
            made[key] = _shaped(rest, part, where, unknown)
        elif rest or is_open:
            made[key] = part
        else:
            unknown.append(where)
    for key, part in known.items():
        if key not in made and "default" in part:
            made[key] = _shaped(part, copy.deepcopy(part["default"]), f"{path}.{key}", unknown)
    return made
