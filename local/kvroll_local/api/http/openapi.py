"""OpenAPI v3, as far as kubectl reads it: `explain`, and whether a kind's patch knows `fieldValidation`."""

from kvroll_local.api.kinds.catalog import Catalog
from kvroll_local.api.kinds.kind import Json, Kind

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index(catalog: Catalog) -> Json:
    return {"paths": {_place(kind): {"serverRelativeURL": f"/openapi/v3/{_place(kind)}"} for kind in catalog}}


def document(catalog: Catalog, place: str) -> Json | None:
    """The schemas and paths of `api/v1` or `apis/GROUP/VERSION`; None where that is not served."""
    kinds = [kind for kind in catalog if _place(kind) == place]
    if not kinds:
        return None
    paths: Json = {}
    for kind in kinds:
        paths.update(_paths(kind))
    schemas = {_name(kind): _schema(kind) for kind in kinds}
    return {
        "openapi": "3.0.0",
        "info": {"title": "kvroll", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _place(kind: Kind) -> str:
    return f"{'apis' if kind.group else 'api'}/{kind.api_version}"


def _name(kind: Kind) -> str:
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind]).lstrip(".")


def _identity(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _schema(kind: Kind) -> Json:
    root = kind.schema.root if kind.schema else {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {**root, "x-kubernetes-group-version-kind": [_identity(kind)]}


def _paths(kind: Kind) -> Json:
    collection = f"/{_place(kind)}/{'namespaces/{namespace}/' if kind.namespaced else ''}{kind.plural}"
    body = {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{_name(kind)}"}}}}

    def operation(action: str) -> Json:
        return {
            "parameters": _PARAMETERS,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _identity(kind),
            "responses": {"200": {"description": "OK", **body}},
        }

    return {
        collection: {"post": operation("post")},
        f"{collection}/{{name}}": {"get": operation("get"), "patch": operation("patch")},
    }
