"""Values as CEL rules see them: by the schema's types and names, not JSON's."""

import re
from typing import Any

Json = dict[str, Any]
_RESERVED = frozenset(
    "true false null in as break const continue else for function if import let loop package namespace return var void while".split()  # noqa: SIM905
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def typed(schema: Json, value: Any) -> Any:
    """The value with numbers as doubles where the schema says `number`, and property names that CEL can spell."""
    if isinstance(value, list):
        return [typed(schema.get("items", {}), item) for item in value]
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        below = rest if isinstance(rest, dict) else {}
        return {
            (escaped(key) if key in known else key): typed(known.get(key, below), part) for key, part in value.items()
        }
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def escaped(name: str) -> str:
    """A property's name in a rule."""
    if name in _RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[.\-/]", lambda found: _ESCAPES[found[0]], name)
