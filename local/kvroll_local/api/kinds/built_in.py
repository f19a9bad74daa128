"""The built-in kinds that kvroll uses, and their columns. A `jsonPath` without a dot names a cell that `views.cells` makes."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from kvroll_local.api.kinds.components import METADATA, component_of, structural
from kvroll_local.api.kinds.kind import AGE, Json, Kind
from kvroll_local.api.schema.schema import Schema


def _column(name: str, path: str, kind: str = "string", priority: int = 0) -> Json:
    return {"name": name, "type": kind, "jsonPath": path, "priority": priority}


_POD = (
    _column("Ready", "ready"), _column("Status", "status"), _column("Restarts", "restarts"), AGE,
    _column("IP", ".status.podIP", priority=1), _column("Node", ".spec.nodeName", priority=1),
)  # fmt: skip
_EVENT = (
    _column("Last Seen", "last_seen"), _column("Type", ".type"), _column("Reason", ".reason"), _column("Object", "object"),
    _column("Message", "message"),
)  # fmt: skip
_BUDGET = (
    _column("Min Available", ".spec.minAvailable"), _column("Max Unavailable", ".spec.maxUnavailable"),
    _column("Allowed Disruptions", ".status.disruptionsAllowed", "integer"), AGE,
)  # fmt: skip
_SERVICE = (_column("Type", ".spec.type"), _column("Cluster-IP", ".spec.clusterIP"), AGE)
_EVENT_FIELDS = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
    "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
)  # fmt: skip
_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
# Group, version, plural, kind, and what else is said of it.
_KINDS: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("", "v1", "pods", "Pod", {
        "short_names": ("po",), "status": True, "generation": True, "columns": _POD, "categories": ("all",), "fields": _POD_FIELDS,
    }),
    ("", "v1", "services", "Service", {"short_names": ("svc",), "status": True, "columns": _SERVICE, "categories": ("all",)}),
    ("", "v1", "configmaps", "ConfigMap", {"short_names": ("cm",)}),
    ("", "v1", "namespaces", "Namespace", {
        "namespaced": False, "short_names": ("ns",), "status": True, "fields": ("status.phase",),
        "columns": (_column("Status", ".status.phase"), AGE),
    }),
    ("", "v1", "events", "Event", {"short_names": ("ev",), "columns": _EVENT, "fields": _EVENT_FIELDS}),
    ("events.k8s.io", "v1", "events", "Event", {
        "short_names": ("ev",), "columns": _EVENT,
        "fields": ("regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "reason", "reportingController", "type"),
    }),
    ("apps", "v1", "controllerrevisions", "ControllerRevision", {"columns": (_column("Revision", ".revision", "integer"), AGE)}),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", {
        "short_names": ("pdb",), "status": True, "generation": True, "columns": _BUDGET,
    }),
)  # fmt: skip


@cache
def built_in() -> tuple[Kind, ...]:
    return tuple(_kinds())


def _kinds() -> Iterator[Kind]:
    metadata = structural(METADATA)
    for group, version, plural, kind, more in _KINDS:
        # Events are stored in the newer group's words, whichever group they came by.
        component = component_of("events.k8s.io/v1" if kind == "Event" else f"{group}/{version}".strip("/"), kind)
        root = structural(component)
        if kind == "Event" and not group:  # the older group asks for less
            root = {key: value for key, value in root.items() if key != "required"}
        yield Kind(group, version, plural, kind, Schema(root, metadata), component, **more)
