"""The metadata that the server alone writes."""

import uuid
from datetime import UTC, datetime

from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects.refused import Json, Refused

SYSTEM = (
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def born(kind: Kind, namespace: str, metadata: Json) -> Json:
    """The metadata of a new object."""
    made = {key: value for key, value in metadata.items() if key not in SYSTEM}
    if not made.get("name"):
        if not made.get("generateName"):
            raise invalid(
                kind, "", [("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
            )
        made["name"] = made["generateName"] + uuid.uuid4().hex[:5]
    if kind.namespaced:
        if made.get("namespace", namespace) != namespace:
            raise Refused(
                400,
                "BadRequest",
                "the namespace of the provided object does not match the namespace sent on the request",
            )
        made["namespace"] = namespace
    else:
        made.pop("namespace", None)
    return made | {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}


def kept(kind: Kind, old: Json, metadata: Json) -> Json:
    """The metadata of a changed object: what the request says, and what only the server may say from before."""
    made = {key: value for key, value in metadata.items() if key not in SYSTEM}
    made |= {key: old[key] for key in SYSTEM if key in old}
    return made | {"name": old["name"]} | ({"namespace": old["namespace"]} if kind.namespaced else {})


def check_preconditions(kind: Kind, old: Json, metadata: Json) -> None:
    """Raises a Conflict where a request names another uid or version than the object has."""
    for field in ("uid", "resourceVersion"):
        if metadata.get(field) not in (None, "", old["metadata"][field]):
            name = old["metadata"]["name"]
            what = (
                f"{field} is {old['metadata'][field]}, not {metadata[field]}; the object has been modified; "
                "please apply your changes to the latest version and try again"
            )
            raise Refused(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {kind.qualified} "{name}": {what}',
                _details(kind, name),
            )


def invalid(kind: Kind, name: str, problems: list[tuple[str, str, str]]) -> Refused:
    """422 with a cause a problem, as Kubernetes words it."""
    causes = [{"reason": reason, "message": message, "field": path} for path, reason, message in problems]
    worded = [f"{path}: {message}" for path, _, message in problems]
    text = worded[0] if len(worded) == 1 else f"[{', '.join(worded)}]"
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": causes}
    return Refused(422, "Invalid", f'{kind.qualified_kind} "{name}" is invalid: {text}', details)


def not_found(kind: Kind, name: str) -> Refused:
    return Refused(404, "NotFound", f'{kind.qualified} "{name}" not found', _details(kind, name))


def exists(kind: Kind, name: str) -> Refused:
    return Refused(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', _details(kind, name))


def _details(kind: Kind, name: str) -> Json:
    return {"name": name, "kind": kind.plural} | ({"group": kind.group} if kind.group else {})
