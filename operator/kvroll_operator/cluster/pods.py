"""Renders a worker Pod from the content of its revision."""

import json
from collections.abc import Mapping
from typing import Any

from kvroll_core.precision.codec import worker_flags
from kvroll_core.quantity import parse_quantity
from kvroll_operator.api.names import LABEL, pod_name, slot_labels
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.rollout.act.effects import CreatePod

Json = dict[str, Any]

CONTAINER = "engine"
GRPC_PORT = 7070
HTTP_PORT = 7071
TERMINATION_GRACE_SECONDS = 120
_MODEL_VOLUME = "kvroll-model"
_MODEL_MOUNT = "/var/lib/kvroll/model"
_MIB = 1024 * 1024
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
}


class TemplateError(ValueError):
    """A content of which no Pod can be made."""


def worker_pod(owner: Owner, effect: CreatePod) -> Json:
    """The Pod of a slot: the user's template with ours merged over it; in a list both have, entries are matched by name.

    Raises:
        TemplateError: a field of the template is not of the type that a Pod has there.
    """
    try:
        return _worker_pod(owner, effect)
    except TemplateError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise TemplateError(
            f"a field is not of the type that it has in a Pod: {type(error).__name__}: {error}"[:500]
        ) from error


def _worker_pod(owner: Owner, effect: CreatePod) -> Json:
    content = json.loads(effect.revision.content)
    template: Json = content.get("template", {})
    pod = merge(template, {"spec": _spec(content, template)})
    metadata = pod.get("metadata", {})
    slot = (effect.revision.short, effect.group, effect.index, effect.incarnation)
    labels = {
        **metadata.get("labels", {}),
        **slot_labels(*slot),
        f"{LABEL}protected": "true",
    }
    # The template's own word on admission would be taken for ours.
    labels.pop(f"{LABEL}admitted", None)
    ours = owner.metadata(pod_name(owner.name, *slot), labels)
    if metadata.get("annotations"):
        ours["annotations"] = metadata["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": ours, "spec": pod["spec"]}


def merge(base: Any, over: Any, key: str = "") -> Any:
    """`over` laid over `base`: objects field by field, lists with a merge key entry by entry, anything else replaced."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        merged = dict(base)
        for name, value in over.items():
            merged[name] = merge(base[name], value, name) if name in base else value
        return merged
    if isinstance(base, list) and isinstance(over, list) and key in _MERGE_KEYS:
        return _merge_lists(base, over, _MERGE_KEYS[key])
    return over


def _merge_lists(base: list[Any], over: list[Any], by: str) -> list[Any]:
    rest = {entry[by]: entry for entry in over}
    merged = [merge(entry, rest.pop(entry.get(by))) if entry.get(by) in rest else entry for entry in base]
    return [*merged, *rest.values()]


def _spec(content: Json, template: Json) -> Json:
    """Our part of the Pod spec; what the template may choose is left to it."""
    theirs: Json = template.get("spec", {})
    grace = theirs.get("terminationGracePeriodSeconds", TERMINATION_GRACE_SECONDS)
    if isinstance(grace, bool) or not isinstance(grace, int) or grace < 0:
        raise TemplateError(
            f"template.spec.terminationGracePeriodSeconds: expected a number of seconds, found {grace!r}"
        )
    spec: Json = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": grace,
        "containers": [_container(content, _named(theirs.get("containers", [])), grace)],
    }
    if "automountServiceAccountToken" not in theirs:
        spec["automountServiceAccountToken"] = False  # a worker never speaks to the API server
    claim, _ = _claim(content["model"]["uri"])
    if claim:
        spec["volumes"] = [{"name": _MODEL_VOLUME, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}]
    return spec


def _named(containers: list[Json]) -> Json:
    return next((c for c in containers if c.get("name") == CONTAINER), {})


def _container(content: Json, theirs: Json, grace_seconds: int) -> Json:
    container: Json = {
        "name": CONTAINER,
        "image": theirs.get("image") or content["engine"]["image"],
        "command": theirs.get("command") or ["python", "-m", "kvroll_worker"],
        "args": worker_args(content),
        "ports": [{"name": "grpc", "containerPort": GRPC_PORT}, {"name": "http", "containerPort": HTTP_PORT}],
        "env": _env(grace_seconds),
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the arithmetic of a spec that does not fit reaches the status
        "readinessProbe": theirs.get("readinessProbe")
        or {
            "httpGet": {"path": "/readyz", "port": "http"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 10,
        },
        "securityContext": theirs.get("securityContext")
        or {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if content.get("resources"):
        container["resources"] = content["resources"]
    if _claim(content["model"]["uri"])[0]:
        container["volumeMounts"] = [{"name": _MODEL_VOLUME, "mountPath": _MODEL_MOUNT, "readOnly": True}]
    return container


def _env(grace_seconds: int) -> list[Json]:
    fields = {"KVROLL_WORKER_ID": "metadata.name", "KVROLL_POD_UID": "metadata.uid", "KVROLL_POD_IP": "status.podIP"}
    env: list[Json] = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    return [*env, {"name": "KVROLL_TERMINATION_GRACE_SECONDS", "value": str(grace_seconds)}]


def worker_args(content: Json) -> list[str]:
    """The worker's command line."""
    model, precision, engine = content["model"], content["precision"], content.get("engine", {})
    claim, path = _claim(model["uri"])
    uri = f"file://{_MODEL_MOUNT}{path}" if claim else model["uri"]
    args = ["--model-uri", uri, "--model-name", model["name"], *worker_flags(precision)]
    for flag, field in (
        ("--max-model-len", "maxModelLen"),
        ("--max-sessions", "maxSessions"),
        ("--threads", "threads"),
    ):
        if engine.get(field) is not None:
            args += [flag, str(engine[field])]
    if engine.get("kvMemory"):
        args += ["--kv-memory", _bytes(engine["kvMemory"])]
    return [*args, *engine.get("args", [])]


def _claim(uri: str) -> tuple[str, str]:
    """(claim, /path) of a pvc:// address, or two empty strings."""
    if not uri.startswith("pvc://"):
        return "", ""
    claim, slash, path = uri.removeprefix("pvc://").partition("/")
    return claim, f"{slash}{path}".rstrip("/")


def _bytes(quantity: str) -> str:
    count = int(parse_quantity(quantity).to_integral_value())
    return f"{count // _MIB}MiB" if count % _MIB == 0 else str(count)
