"""OpenAPI v3, as far as kubectl reads it: `explain`, and whether a kind's patch knows `fieldValidation`."""

from kvroll_local.api.kinds.catalog import Catalog
from kvroll_local.api.kinds.components import METADATA, document
from kvroll_local.api.kinds.kind import Json, Kind
from kvroll_local.api.kinds.references import REF, refs

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index(catalog: Catalog) -> Json:
    return {"paths": {_place(kind): {"serverRelativeURL": f"/openapi/v3/{_place(kind)}"} for kind in catalog}}


def described(catalog: Catalog, place: str) -> Json | None:
    """The schemas and paths of `api/v1` or `apis/GROUP/VERSION`; None where that is not served."""
    kinds = [kind for kind in catalog if _place(kind) == place]
    if not kinds:
        return None
    paths: Json = {}
    schemas: Json = {}
    for kind in kinds:
        paths.update(_paths(kind))
        schemas[_name(kind)] = _schema(kind)
    for name in list(schemas):
        _add_needed(schemas[name], schemas)
    info = {"title": "kvroll", "version": document()["kubernetes"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _place(kind: Kind) -> str:
    return f"{'apis' if kind.group else 'api'}/{kind.api_version}"


def _name(kind: Kind) -> str:
    return kind.component or ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _identity(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _schema(kind: Kind) -> Json:
    if kind.component:
        found = document()["components"][kind.component]
        return {**found, "x-kubernetes-group-version-kind": [_identity(kind)]}
    root = kind.schema.root
    properties = {**root.get("properties", {}), "metadata": {"$ref": REF + METADATA}}
    return {**root, "properties": properties, "x-kubernetes-group-version-kind": [_identity(kind)]}


def _add_needed(schema: Json, schemas: Json) -> None:
    for name in refs(schema):
        if name not in schemas:
            schemas[name] = document()["components"][name]
            _add_needed(schemas[name], schemas)


def _paths(kind: Kind) -> Json:
    collection = f"/{_place(kind)}/{'namespaces/{namespace}/' if kind.namespaced else ''}{kind.plural}"
    schema = {"application/json": {"schema": {"$ref": REF + _name(kind)}}}
    answers = {"200": {"description": "OK", "content": schema}}

    def operation(action: str) -> Json:
        identity = {"x-kubernetes-action": action, "x-kubernetes-group-version-kind": _identity(kind)}
        return {"parameters": _PARAMETERS, "responses": answers, **identity}

    named = {"get": operation("get"), "patch": operation("patch"), "put": operation("put")}
    return {collection: {"get": operation("list"), "post": operation("post")}, f"{collection}/{{name}}": named}
