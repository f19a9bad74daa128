"""Tables: what kubectl asks for to print columns."""

from collections.abc import Sequence

from kvroll_local.api.views.cells import Json, cell


def table(columns: Sequence[Json], items: Sequence[Json], metadata: Json, include_object: str) -> Json:
    """A meta.k8s.io/v1 Table. `include_object` is None, Metadata or Object, as in the request."""
    heads = [{"name": "Name", "type": "string", "format": "name", "description": "Name of the object", "priority": 0}]
    heads += [
        {"format": "", "description": "", "priority": 0} | {k: v for k, v in c.items() if k != "jsonPath"}
        for c in columns
    ]
    rows = [
        {"cells": [o["metadata"]["name"], *(cell(c, o) for c in columns)], "object": _shown(o, include_object)}
        for o in items
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": heads,
        "rows": rows,
    }


def _shown(o: Json, include_object: str) -> Json | None:
    if include_object == "None":
        return None
    if include_object == "Object":
        return o
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
