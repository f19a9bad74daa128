"""What an object becomes by an update, a patch or an apply."""

from typing import Any

from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects.change import How, Request, owned
from kvroll_local.api.objects.refused import Json, Refused
from kvroll_local.api.patches.apply import apply, conflicts, without
from kvroll_local.api.patches.json_patch import PatchFailed, json_patch
from kvroll_local.api.patches.merge import merge
from kvroll_local.api.patches.strategic import strategic

Applied = dict[str, Json]


def patched(kind: Kind, old: Json, before: Applied, body: Any, request: Request) -> tuple[Json, Applied | None]:
    """The new object, and what managers have applied where that changes. `before` is what they applied until now."""
    how = request.how
    if how is How.STRATEGIC and kind.custom:
        raise unsupported_media(How.JSON, How.MERGE, How.APPLY)
    try:
        if how is How.JSON:
            return _object(json_patch(old, body)), None
        body = _object(body)
        if how is How.STRATEGIC:
            return _object(strategic(old, body, kind.schema.root)), None
    except PatchFailed as error:
        why = f"the server rejected our request due to an error in our request: {error}"
        raise Refused(422, "Invalid", why) from error
    if how is How.APPLY:
        return applied(kind, old, before, body, request)
    return (body if how is How.UPDATE else merge(old, body)), None


def applied(kind: Kind, old: Json, before: Applied, body: Json, request: Request) -> tuple[Json, Applied]:
    """Server-side apply.

    Raises a Conflict where another manager applied other values, unless it is forced: then the fields change hands.
    """
    mine, label, root = owned(body, request.subresource), f"{request.manager}/{request.subresource}", kind.schema.root
    others = {name: config for name, config in before.items() if name != label}
    clashes = [(name, path) for name, config in others.items() for path in conflicts(config, mine, root)]
    if clashes and not request.force:
        raise _conflict(clashes)
    last = before.get(label)
    for name, path in clashes:
        if rest := without(others[name], _only(mine, path), root):
            others[name] = rest
        else:
            others.pop(name, None)
    for config in others.values():
        # What another manager applied too stays when this one no longer names it.
        last = without(last, config, root) if last is not None else None
    return apply(old, last, mine, root), {**others, label: mine}


def _only(mine: Json, path: str) -> Json:
    """Of a configuration, what one path names. Items of lists change hands with their list's field."""
    steps = path.split("[")[0].strip(".").split(".")
    made: Any = mine
    for step in steps:
        made = made[step]
    for step in reversed(steps):
        made = {step: made}
    return dict(made)


def _conflict(clashes: list[tuple[str, str]]) -> Refused:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{name.partition("/")[0]}"', "field": path}
        for name, path in clashes
    ]
    noun = "conflict" if len(causes) == 1 else "conflicts"
    listed = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return Refused(409, "Conflict", f"Apply failed with {len(causes)} {noun}: {listed}", {"causes": causes})


def _object(body: Any) -> Json:
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict | None):
        raise Refused(400, "BadRequest", f"expected an object with metadata, found {type(body).__name__}")
    return body


def unsupported_media(*ways: How) -> Refused:
    listed = ", ".join(how.value for how in ways)
    what = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return Refused(415, "UnsupportedMediaType", what)
