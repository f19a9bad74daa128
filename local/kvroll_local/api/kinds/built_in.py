"""The built-in kinds that kvroll uses, and their columns. A `jsonPath` without a dot names a cell that `views.pod` makes."""

from kvroll_local.api.kinds.kind import AGE, Json, Kind


def _column(name: str, path: str, kind: str = "string", priority: int = 0) -> Json:
    return {"name": name, "type": kind, "jsonPath": path, "priority": priority}


_POD = (
    _column("Ready", "ready"), _column("Status", "status"), _column("Restarts", "restarts"), AGE,
    _column("IP", ".status.podIP", priority=1), _column("Node", ".spec.nodeName", priority=1),
)  # fmt: skip
_EVENT = (
    _column("Last Seen", "last_seen", "date"), _column("Type", ".type"), _column("Reason", ".reason"), _column("Object", "object"),
    _column("Message", ".message"),
)  # fmt: skip
_BUDGET = (
    _column("Min Available", ".spec.minAvailable"), _column("Max Unavailable", ".spec.maxUnavailable"),
    _column("Allowed Disruptions", ".status.disruptionsAllowed", "integer"), AGE,
)  # fmt: skip
_SERVICE = (_column("Type", ".spec.type"), _column("Cluster-IP", ".spec.clusterIP"), AGE)

BUILT_IN = (
    Kind("", "v1", "pods", "Pod", short_names=("po",), status=True, columns=_POD, categories=("all",)),
    Kind("", "v1", "services", "Service", short_names=("svc",), status=True, columns=_SERVICE, categories=("all",)),
    Kind("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    Kind(
        "",
        "v1",
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        status=True,
        columns=(_column("Status", ".status.phase"), AGE),
    ),
    Kind("", "v1", "events", "Event", short_names=("ev",), columns=_EVENT),
    Kind("events.k8s.io", "v1", "events", "Event", short_names=("ev",), columns=_EVENT),
    Kind(
        "apps",
        "v1",
        "controllerrevisions",
        "ControllerRevision",
        columns=(_column("Revision", ".revision", "integer"), AGE),
    ),
    Kind(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short_names=("pdb",),
        status=True,
        columns=_BUDGET,
    ),
)
