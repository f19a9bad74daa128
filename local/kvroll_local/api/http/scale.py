"""The scale subresource of a CRD."""

from typing import Any

from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects.refused import Json, Refused


def scale_of(kind: Kind, o: Json) -> Json:
    """The autoscaling/v1 Scale of an object."""
    paths = kind.scale or {}
    metadata = {
        key: o["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in o["metadata"]
    }
    status: Json = {"replicas": _get(o, paths["statusReplicasPath"]) or 0}
    if paths.get("labelSelectorPath"):
        status["selector"] = _get(o, paths["labelSelectorPath"]) or ""
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": _get(o, paths["specReplicasPath"]) or 0},
        "status": status,
    }


def change_of(kind: Kind, scale: Json) -> Json:
    """The merge patch of the object that a Scale asks for."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        name = (scale.get("metadata") or {}).get("name", "")
        raise Refused(
            422,
            "Invalid",
            f'Scale.autoscaling "{name}" is invalid: spec.replicas: Invalid value: {replicas!r}: must be greater than or equal to 0',
        )
    made: Any = replicas
    for step in reversed((kind.scale or {})["specReplicasPath"].strip(".").split(".")):
        made = {step: made}
    metadata = scale.get("metadata") or {}
    return {**made, "metadata": {key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)}}


def _get(o: Any, path: str) -> Any:
    for step in path.strip(".").split("."):
        o = o.get(step) if isinstance(o, dict) else None
    return o
