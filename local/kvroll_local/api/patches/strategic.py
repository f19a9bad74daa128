"""Strategic merge patch: a merge patch that merges lists by the keys which Kubernetes' schemas name."""

from typing import Any

from kvroll_local.api.patches.json_patch import PatchFailed

Json = dict[str, Any]
_ORDER, _DELETE_FROM, _RETAIN, _PATCH = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch"


def strategic(live: Any, patch: Any, schema: Json) -> Any:
    """`live` with `patch` laid over it. Raises PatchFailed for a directive that is none."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchFailed(f"$patch: expected replace, delete or merge, found {directive!r}")
    made = dict(live) if isinstance(live, dict) else {}
    if _RETAIN in patch:
        made = {key: value for key, value in made.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        if key in (_RETAIN, _PATCH) or key.startswith(_ORDER):
            continue
        if key.startswith("$"):
            _delete_from(made, key, value)
        elif value is None:
            made.pop(key, None)
        else:
            part = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            order = patch.get(_ORDER + key)
            made[key] = _below(made.get(key), value, part if isinstance(part, dict) else {}, order)
    return made


def _delete_from(made: Json, directive: str, value: Any) -> None:
    if not directive.startswith(_DELETE_FROM) or not isinstance(value, list):
        raise PatchFailed(f"{directive} is no directive of a strategic merge patch")
    name = directive.removeprefix(_DELETE_FROM)
    if name in made:
        made[name] = [item for item in made[name] if item not in value]


def _below(live: Any, value: Any, schema: Json, order: Any) -> Any:
    if not isinstance(value, list):
        return strategic(live, value, schema)
    if "merge" not in schema.get("x-kubernetes-patch-strategy", ""):
        return value
    key = schema.get("x-kubernetes-patch-merge-key")
    lives = live if isinstance(live, list) else []
    whole = [*lives, *(item for item in value if item not in lives)]
    made = _by_key(lives, value, key, schema.get("items", {})) if key else whole
    return _ordered(made, order, key) if isinstance(order, list) else made


def _by_key(lives: list[Any], patches: list[Any], key: str, schema: Json) -> list[Any]:
    if any(item == {_PATCH: "replace"} for item in patches):
        return [item for item in patches if item != {_PATCH: "replace"}]
    made = {item.get(key): item for item in lives}
    for item in patches:
        if not isinstance(item, dict) or key not in item:
            raise PatchFailed(f"each item of the list needs its merge key {key!r}, found {item!r}")
        if item.get(_PATCH) == "delete":
            made.pop(item[key], None)
        else:
            made[item[key]] = strategic(made.get(item[key]), item, schema)
    return list(made.values())


def _ordered(made: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """The listed items in their order, then the rest in the order they had."""
    names = [item.get(key) if key and isinstance(item, dict) else item for item in order]

    def place(item: Any) -> int:
        name = item.get(key) if key and isinstance(item, dict) else item
        return names.index(name) if name in names else len(names)

    return sorted(made, key=place)
