"""Server-side apply with force, from what the manager applied last."""

from typing import Any

Json = dict[str, Any]


def apply(live: Any, last: Any, new: Any, schema: Json) -> Any:
    """`live` with a manager's configuration `new` laid over it; fields that it applied last and no longer names go.

    All others stay. Lists are atomic unless the schema names `x-kubernetes-list-map-keys`. Fields of other managers are never in conflict.
    """
    if isinstance(new, dict):
        return _apply_mapping(_mapping(live), _mapping(last), new, schema)
    keys = schema.get("x-kubernetes-list-map-keys")
    if isinstance(new, list) and keys:
        return _apply_map_list(live, last, new, keys, schema["items"])
    return new


def _apply_mapping(live: Json, last: Json, new: Json, schema: Json) -> Json:
    made = {key: value for key, value in live.items() if key in new or key not in last}
    for key in last.keys() - new.keys():
        # A struct goes as a whole, its defaulted children with it; in a map what others set survives.
        is_struct = "properties" in schema.get("properties", {}).get(key, {})
        if isinstance(live.get(key), dict) and isinstance(last[key], dict) and not is_struct:
            rest = apply(live[key], last[key], {}, {})
            if rest:
                made[key] = rest
    for key, value in new.items():
        part = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
        made[key] = apply(live.get(key), last.get(key), value, part if isinstance(part, dict) else {})
    return made


def _apply_map_list(live: Any, last: Any, new: list[Any], keys: list[str], schema: Json) -> list[Any]:
    def named(items: Any) -> dict[tuple[Any, ...], Any]:
        return {tuple(item.get(key) for key in keys): item for item in items or () if isinstance(item, dict)}

    lives, lasts, news = named(live), named(last), named(new)
    kept = [name for name in lives if name in news or name not in lasts]
    order = [*kept, *(name for name in news if name not in lives)]
    return [apply(lives.get(n), lasts.get(n), news[n], schema) if n in news else lives[n] for n in order]


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
