"""Operator and gateway as Pods of the agent: probed, restarted, logged and adopted like any other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroll_local.up.folder import SiteRecord

Json = dict[str, Any]
NAMESPACE = "kvroll-system"
OPERATOR, GATEWAY = "kvroll-operator", "kvroll-gateway"
WORKER_IMAGE = "kvroll:local"
"""A label only: a worker runs the installation that runs us."""
_OPERATOR_PORT = 8081


@dataclass(frozen=True)
class PartOptions:
    """What the two need beside the record. `drain_seconds` is how long the gateway lets open streams go on when it is ended."""

    kubeconfig: Path
    session_key: Path
    drain_seconds: float


def pods(record: SiteRecord, options: PartOptions) -> list[Json]:
    """Both, as the API takes them."""
    return [_operator(record, options), _gateway(record, options)]


def _operator(record: SiteRecord, options: PartOptions) -> Json:
    args = [f"--namespace={record.namespace}", f"--worker-image={WORKER_IMAGE}", "--lease="]
    args += [f"--dataset-folder={record.datasets}"] if record.datasets else []
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "timeoutSeconds": 5}
    container = {
        "name": "operator", "image": WORKER_IMAGE, "command": ["python", "-m", "kvroll_operator"],
        "args": [*args, "--host=$(POD_IP)", f"--port={_OPERATOR_PORT}"],
        "env": _env(options), "ports": [{"name": "http", "containerPort": _OPERATOR_PORT}],
        "startupProbe": {**probe, "periodSeconds": 2, "failureThreshold": 60},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**probe, "periodSeconds": 5},
    }  # fmt: skip
    return _pod(OPERATOR, container, 10)


def _gateway(record: SiteRecord, options: PartOptions) -> Json:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(record.gateway_host, record.gateway_host)
    args = [f"--namespace={record.namespace}", f"--host={record.gateway_host}", f"--port={record.gateway_port}"]
    container = {
        "name": "gateway", "image": WORKER_IMAGE, "command": ["python", "-m", "kvroll_gateway"],
        "args": [*args, f"--drain-seconds={options.drain_seconds:g}", f"--session-key-file={options.session_key}"],
        "env": _env(options), "ports": [{"name": "http", "containerPort": record.gateway_port, "hostIP": record.gateway_host}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": record.gateway_port, "host": host}, "periodSeconds": 2, "timeoutSeconds": 5,
        },
    }  # fmt: skip
    return _pod(GATEWAY, container, int(options.drain_seconds) + 10)


def _env(options: PartOptions) -> list[Json]:
    return [
        {"name": "KUBECONFIG", "value": str(options.kubeconfig)},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]


def _pod(name: str, container: Json, grace_seconds: int) -> Json:
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": name}},
        "spec": {"terminationGracePeriodSeconds": grace_seconds, "containers": [container]},
    }  # fmt: skip


def is_same(wanted: Json, found: Json) -> bool:
    """Whether a Pod that is there runs what is wanted; defaults that the server filled in do not count."""

    def shape(pod: Json) -> list[tuple[Any, ...]]:
        return [tuple(c.get(part) for part in ("command", "args", "env")) for c in pod["spec"]["containers"]]

    return shape(wanted) == shape(found)
