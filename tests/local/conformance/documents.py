"""The objects that the table's requests send, and the refusals that they expect."""

from typing import Any

from tests.local.conformance.scenario import has

TABLE_ACCEPT = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def pool(name: str = "a", metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    usual = {
        "replicas": 2,
        "model": {"name": "a", "uri": "file:///a"},
        "precision": {"weights": "bf16", "kvCache": "bf16"},
    }
    kind = {"apiVersion": "kvroll.dev/v1alpha1", "kind": "InferencePool"}
    return {**kind, "metadata": {"name": name, **(metadata or {})}, "spec": {**usual, **spec}}


def config(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def status(code: int, reason: str, *words: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": has(*words)}


CONTAINER = {"name": "main", "image": "busybox:none"}
# A node selector that no node has: the Pod stays Pending on any cluster.
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"app": "p"}},
    "spec": {
        "containers": [CONTAINER],
        "nodeSelector": {"kvroll.dev/nowhere": "true"},
        "automountServiceAccountToken": False,
    },
}
