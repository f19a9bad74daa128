"""Which workers exist, from static addresses or from Pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

POOL_LABEL = "kvroll.dev/pool"
ADMITTED_LABEL = "kvroll.dev/admitted"
GRPC_PORT = 7070


@dataclass(frozen=True)
class WorkerTarget:
    """A worker to attach to. `key` names it for as long as it may be the same process tree: the Pod's UID or the static address."""

    key: str
    name: str
    address: str
    admitted: bool
    leaving: bool = False  # the cluster is taking it away


def static_targets(addresses: Iterable[str]) -> list[WorkerTarget]:
    """Workers named on the command line; all of them are admitted, their own answer decides."""
    return [WorkerTarget(address, address, address, admitted=True) for address in addresses]


def pod_target(pod: Mapping[str, Any]) -> WorkerTarget | None:
    """The worker that a Pod (as the API's JSON) runs; None if it has no address or has ended.

    A Pod with a deletionTimestamp is still attached, for its sessions, but gets no new ones (readiness alone would route to it).
    """
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    labels = metadata.get("labels") or {}
    address = status.get("podIP")
    if POOL_LABEL not in labels or status.get("phase") != "Running" or not address:
        return None
    host = f"[{address}]" if ":" in address else address
    leaving = bool(metadata.get("deletionTimestamp"))
    admitted = labels.get(ADMITTED_LABEL) == "true" and not leaving
    return WorkerTarget(metadata["uid"], metadata["name"], f"{host}:{_grpc_port(pod)}", admitted, leaving)


def _grpc_port(pod: Mapping[str, Any]) -> int:
    for container in (pod.get("spec") or {}).get("containers") or []:
        for port in container.get("ports") or []:
            if container.get("name") == "engine" and port.get("name") == "grpc":
                return int(port["containerPort"])
    return GRPC_PORT
