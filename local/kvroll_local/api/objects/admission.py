"""Whether an object may be written: known fields, types, bounds, rules, what must not change."""

from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects.change import Request, Unknown
from kvroll_local.api.objects.identity import check_names, invalid
from kvroll_local.api.objects.refused import Json, Refused
from kvroll_local.api.schema.checks import TYPE_INVALID

_IMMUTABLE = {"ControllerRevision": ("data",)}


def admitted(kind: Kind, new: Json, old: Json | None, request: Request) -> Json:
    """The object as it will be stored: without unknown fields, with defaults. Raises Refused."""
    shaped, unknown = kind.schema.shape(new)
    if unknown and request.unknown is Unknown.STRICT:
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise _undecodable(kind, f"strict decoding error: {listed}")
    if request.unknown is Unknown.WARN:
        request.warnings.extend(f'unknown field "{path}"' for path in unknown)
    if malformed := kind.schema.malformed(shaped):
        raise _undecodable(kind, "; ".join(f"{path}: {message}" for path, _, message in malformed))
    check_names(kind, shaped["metadata"])
    problems = kind.schema.problems(shaped, old)
    if not kind.custom and any(reason == TYPE_INVALID for _, reason, _ in problems):
        raise _undecodable(kind, "; ".join(f"{path}: {message}" for path, _, message in problems))
    for name in _IMMUTABLE.get(kind.kind, ()):
        if old is not None and shaped.get(name) != old.get(name):
            problems.append((name, "FieldValueInvalid", "Invalid value: field is immutable"))
    if problems:
        raise invalid(kind, shaped["metadata"]["name"], problems)
    return shaped


def _undecodable(kind: Kind, why: str) -> Refused:
    return Refused(
        400, "BadRequest", f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )
