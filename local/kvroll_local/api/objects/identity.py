"""The metadata that the server alone writes, and what it checks of the rest."""

import re
import uuid
from datetime import UTC, datetime, timedelta

from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects.change import How, Request
from kvroll_local.api.objects.refused import Json, Refused
from kvroll_local.api.schema.checks import Problem

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
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_NAME_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character, at most 63 of them"
)


def now(seconds_ahead: float = 0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds_ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")


def born(kind: Kind, namespace: str, metadata: Json) -> Json:
    """The metadata of a new object."""
    made = {key: value for key, value in metadata.items() if key not in SYSTEM}
    if not made.get("name"):
        if not made.get("generateName"):
            problem = ("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
            raise invalid(kind, "", [problem])
        made["name"] = made["generateName"] + uuid.uuid4().hex[:5]
    if kind.namespaced:
        if made.get("namespace") not in (None, "", namespace):
            what = "the namespace of the provided object does not match the namespace sent on the request"
            raise Refused(400, "BadRequest", what)
        made["namespace"] = namespace
    else:
        made.pop("namespace", None)
    made |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
    return made | ({"generation": 1} if kind.generation else {})


def kept(kind: Kind, old: Json, metadata: Json) -> Json:
    """The metadata of a changed object: what the request says, and what only the server may say from before."""
    made = {key: value for key, value in metadata.items() if key not in SYSTEM}
    made |= {key: old[key] for key in SYSTEM if key in old}
    return made | {"name": old["name"]} | ({"namespace": old["namespace"]} if kind.namespaced else {})


def check_body(kind: Kind, body: Json, name: str) -> None:
    """Raises Refused where a body is of another kind, or of another name, than the path."""
    found = body.get("apiVersion")
    if found not in (None, "", kind.api_version):
        what = f"the API version in the data ({found}) does not match the expected API version ({kind.api_version})"
        raise Refused(400, "BadRequest", what)
    found = body.get("kind")
    if found not in (None, "", kind.kind):
        if kind.custom:
            problem = ("kind", "FieldValueInvalid", f'Invalid value: "{found}": must be {kind.kind}')
            raise invalid(kind, name or str((body.get("metadata") or {}).get("name", "")), [problem])
        raise Refused(
            400, "BadRequest", f"the kind in the data ({found}) does not match the expected kind ({kind.kind})"
        )
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise Refused(400, "BadRequest", f"metadata: expected an object, found {type(metadata).__name__}")
    found = metadata.get("name")
    if name and found not in (None, "", name):
        what = f"the name of the object ({found}) does not match the name on the URL ({name})"
        raise Refused(400, "BadRequest", what)


def check_preconditions(kind: Kind, old: Json, metadata: Json, request: Request) -> None:
    """Raises a Conflict where a request names another uid or version than the object has."""
    name = old["metadata"]["name"]
    if kind.custom and request.how is How.UPDATE and not metadata.get("resourceVersion"):
        what = "Invalid value: 0: must be specified for an update"
        raise invalid(kind, name, [("metadata.resourceVersion", "FieldValueInvalid", what)])
    found = old["metadata"]
    why = ""
    if metadata.get("resourceVersion") not in (None, "", found["resourceVersion"]):
        why = "the object has been modified; please apply your changes to the latest version and try again"
    elif metadata.get("uid") not in (None, "", found["uid"]):
        if request.how is not How.UPDATE:
            what = f'Invalid value: "{metadata["uid"]}": field is immutable'
            raise invalid(kind, name, [("metadata.uid", "FieldValueInvalid", what)])
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {found['uid']}"
    if why:
        message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
        raise Refused(409, "Conflict", message, _details(kind, name))


def check_names(kind: Kind, metadata: Json) -> None:
    """Raises Refused where a name, a label or an owner is not well-formed."""
    found: list[Problem] = []
    name = str(metadata["name"])
    if not _SUBDOMAIN.fullmatch(name) or len(name) > 253:
        found.append(("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_NAME_WORDS}'))
    for key, value in (metadata.get("labels") or {}).items():
        if len(value) > 63 or not _VALUE.fullmatch(value):
            found.append(("metadata.labels", "FieldValueInvalid", f'Invalid value: "{value}": {_VALUE_WORDS}'))
        found += [("metadata.labels", *problem) for problem in _key_problems(key)]
    for key in metadata.get("annotations") or {}:
        found += [("metadata.annotations", *problem) for problem in _key_problems(key)]
    for i, owner in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                where = f"metadata.ownerReferences[{i}].{field}"
                found.append((where, "FieldValueInvalid", 'Invalid value: "": must not be empty'))
    if found:
        raise invalid(kind, name, found)


def _key_problems(key: str) -> list[tuple[str, str]]:
    prefix, _, name = key.rpartition("/")
    is_sound = name and _VALUE.fullmatch(name) and len(name) <= 63 and ("/" not in key or _SUBDOMAIN.fullmatch(prefix))
    return (
        []
        if is_sound
        else [("FieldValueInvalid", f'Invalid value: "{key}": expected [PREFIX/]NAME, where {_VALUE_WORDS}')]
    )


def check_finalizers(kind: Kind, old: Json, new: Json) -> None:
    """Raises Refused where an object that is being deleted gets new finalizers."""
    if "deletionTimestamp" not in old["metadata"]:
        return
    added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
    if added:
        listed = ", ".join(f'"{one}"' for one in sorted(added))
        what = (
            f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers [{listed}]"
        )
        raise invalid(kind, old["metadata"]["name"], [("metadata.finalizers", "FieldValueForbidden", what)])


def invalid(kind: Kind, name: str, problems: list[Problem]) -> Refused:
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
