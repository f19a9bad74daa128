"""What is special about Pods: defaults, binding to a node, the grace of a deletion."""

from typing import Any

from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects.identity import invalid, now
from kvroll_local.api.objects.refused import Json, Refused

_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_CONTAINER = {
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def born(kind: Kind, pod: Json) -> Json:
    """A new Pod with Kubernetes' defaults, Pending and without a node."""
    spec = pod.get("spec") or {}
    if not spec.get("containers"):
        raise invalid(kind, pod["metadata"]["name"], [("spec.containers", "FieldValueRequired", "Required value")])
    made = defaulted(pod)
    return {**made, "status": {"phase": "Pending", "qosClass": _qos(made["spec"]["containers"])}}


def defaulted(pod: Json) -> Json:
    """The Pod with Kubernetes' defaults where its spec says nothing."""
    spec = pod["spec"]
    parts = {
        part: [_container(container) for container in spec[part]]
        for part in ("containers", "initContainers")
        if part in spec
    }
    return {**pod, "spec": {**_SPEC, **spec, **parts}}


def _container(container: Json) -> Json:
    made = {**_CONTAINER, **container}
    made["resources"] = _resources(made["resources"])
    if "ports" in made:
        made["ports"] = [{"protocol": "TCP", **port} for port in made["ports"]]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in made:
            made[probe] = {**_PROBE, **made[probe]}
    return made


def _resources(resources: Json) -> Json:
    """Quantities as Kubernetes answers them, strings: typed clients take no number, though people write one (`nvidia.com/gpu: 1`)."""
    if not isinstance(resources, dict):
        return resources
    return {part: _quantities(value) if part in ("limits", "requests") else value for part, value in resources.items()}


def _quantities(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {name: str(value) if isinstance(value, int | float) else value for name, value in values.items()}


def _qos(containers: list[Json]) -> str:
    resources: list[Any] = [c.get("resources") or {} for c in containers]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    full = all(
        {"cpu", "memory"} <= (r.get("limits") or {}).keys() and (r.get("requests") or r["limits"]) == r["limits"]
        for r in resources
    )
    return "Guaranteed" if full else "Burstable"


_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")


def check_change(kind: Kind, old: Json, new: Json) -> None:
    """Raises Refused where an update changes more of a Pod's spec than may change: images and a few deadlines."""

    def fixed(pod: Json) -> Json:
        spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in _CHANGEABLE}
        for part in ("containers", "initContainers"):
            if part in spec:
                spec[part] = [{k: v for k, v in container.items() if k != "image"} for container in spec[part]]
        return spec

    if fixed(old) != fixed(new):
        what = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`"
        problem = ("spec", "FieldValueForbidden", f"{what} and {', '.join(f'`spec.{name}`' for name in _CHANGEABLE)}")
        raise invalid(kind, old["metadata"]["name"], [problem])


def grace_seconds(pod: Json, options: Json) -> int:
    """How long its processes have. None where nothing runs: an unbound or a finished Pod goes at once."""
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(pod["spec"]["terminationGracePeriodSeconds"] if asked is None else asked)


def bound(kind: Kind, pod: Json, node: str) -> Json:
    """The Pod on its node. Raises a Conflict where it has one."""
    name = pod["metadata"]["name"]
    if pod["spec"].get("nodeName"):
        raise Refused(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"',
        )
    if "deletionTimestamp" in pod["metadata"]:
        raise Refused(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} is being deleted, cannot be assigned to a host',
        )
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
    status = pod.get("status") or {}
    conditions = [c for c in status.get("conditions", ()) if c["type"] != "PodScheduled"]
    return {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*conditions, scheduled]},
    }
