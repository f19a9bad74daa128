"""Server-side apply, from what each manager applied last.

Kubernetes keeps an owner for every field; here only what was applied has owners. Updates and patches own nothing: an apply overwrites them.
"""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
_KEYS = "x-kubernetes-list-map-keys"


def apply(live: Any, last: Any, new: Any, schema: Json) -> Any:
    """`live` with a manager's configuration `new` laid over it; fields that it applied last and no longer names go.

    All others stay. Lists are atomic unless the schema names keys or says that it is a set.
    """
    if isinstance(new, dict):
        return _apply_mapping(_mapping(live), _mapping(last), new, schema)
    if isinstance(new, list) and schema.get(_KEYS):
        return _apply_map_list(live, last, new, schema)
    if isinstance(new, list) and schema.get("x-kubernetes-list-type") == "set":
        others = [item for item in live or () if item not in (last or ()) and item not in new]
        return [*others, *new]
    return new


def conflicts(other: Any, new: Any, schema: Json, path: str = "") -> Iterator[str]:
    """The fields that another manager applied with another value than `new` has."""
    if isinstance(new, dict) and isinstance(other, dict):
        for key in new.keys() & other.keys():
            yield from conflicts(other[key], new[key], _below(schema, key), f"{path}.{key}")
    elif isinstance(new, list) and isinstance(other, list) and schema.get(_KEYS):
        names = _named(other, schema[_KEYS])
        for name, item in _named(new, schema[_KEYS]).items():
            if name in names:
                shown = ",".join(f"{key}={value!r}" for key, value in zip(schema[_KEYS], name, strict=True))
                yield from conflicts(names[name], item, schema.get("items", {}), f"{path}[{shown}]")
    elif schema.get("x-kubernetes-list-type") != "set" and new != other:
        yield path


def without(owned: Any, taken: Any, schema: Json) -> Any:
    """What of a configuration is left to its manager when another one takes the fields of `taken`: None where nothing is."""
    if isinstance(owned, dict) and isinstance(taken, dict):
        kept = {key: value for key, value in owned.items() if key not in taken}
        for key in owned.keys() & taken.keys():
            rest = without(owned[key], taken[key], _below(schema, key))
            if rest is not None:
                kept[key] = rest
        return kept or None
    if isinstance(owned, list) and isinstance(taken, list) and schema.get(_KEYS):
        names, keys = _named(taken, schema[_KEYS]), schema[_KEYS]
        # An item stays owned by its keys as long as anything of it is.
        items = [
            item for name, item in _named(owned, keys).items() if name not in names or item.keys() - names[name].keys()
        ]
        return items or None
    return None


def _apply_mapping(live: Json, last: Json, new: Json, schema: Json) -> Json:
    made = {key: value for key, value in live.items() if key in new or key not in last}
    for key in last.keys() - new.keys():
        # A struct goes as a whole, its defaulted children with it; in a map what others set survives.
        below = _below(schema, key)
        if isinstance(live.get(key), dict) and isinstance(last[key], dict) and "properties" not in below:
            rest = apply(live[key], last[key], {}, below)
            if rest:
                made[key] = rest
        elif isinstance(live.get(key), list) and below.get(_KEYS):
            rest = _apply_map_list(live[key], last[key], [], below)
            if rest:
                made[key] = rest
    for key, value in new.items():
        made[key] = apply(live.get(key), last.get(key), value, _below(schema, key))
    return made


def _apply_map_list(live: Any, last: Any, new: list[Any], schema: Json) -> list[Any]:
    keys = schema[_KEYS]
    lives, lasts, news = _named(live, keys), _named(last, keys), _named(new, keys)
    kept = [name for name in lives if name in news or name not in lasts]
    order = [*kept, *(name for name in news if name not in lives)]
    item = schema.get("items", {})
    return [apply(lives.get(n), lasts.get(n), news[n], item) if n in news else lives[n] for n in order]


def _named(items: Any, keys: list[str]) -> dict[tuple[Any, ...], Any]:
    return {tuple(item.get(key) for key in keys): item for item in items or () if isinstance(item, dict)}


def _below(schema: Json, key: str) -> Json:
    part = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
    return part if isinstance(part, dict) else {}


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
