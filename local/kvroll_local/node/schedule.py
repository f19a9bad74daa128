"""Whether a Pod fits beside those that hold something already, and which devices it gets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvroll_core.quantity import whole

DEVICE = "nvidia.com/gpu"
_FREE = ("ephemeral-storage",)  # asked for by some templates; the state folder's disk is nobody's to divide


@dataclass(frozen=True)
class NodeRoom:
    """What this machine offers to Pods; `devices` as CUDA_VISIBLE_DEVICES names them."""

    cpu_millis: int
    memory_bytes: int
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoomRequest:
    """What a Pod sets aside; `unknown` are resources that no machine here has."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    num_devices: int = 0
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grant:
    """What a placed Pod holds until it is gone."""

    request: RoomRequest
    devices: tuple[str, ...] = ()


def request(pod_spec: Mapping[str, Any]) -> RoomRequest:
    """The sum over the containers; as in Kubernetes a limit without a request is the request.

    Raises:
        QuantityError: a value that is no quantity.
    """
    cpu, memory, devices, unknown = 0, 0, 0, set()
    for container in pod_spec.get("containers", []):
        resources = container.get("resources") or {}
        for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            if name == "cpu":
                cpu += whole(value, 1000)
            elif name == "memory":
                memory += whole(value)
            elif name == DEVICE:
                devices += whole(value)
            elif name not in _FREE and whole(value):
                unknown.add(name)
    return RoomRequest(cpu, memory, devices, tuple(sorted(unknown)))


def place(asked: RoomRequest, machine: NodeRoom, held: Iterable[Grant]) -> Grant | str:
    """The grant, or why there is none, in a scheduler's words."""
    grants = list(held)
    used = {device for grant in grants for device in grant.devices}
    free = tuple(device for device in machine.devices if device not in used)
    short = []
    if asked.cpu_millis > machine.cpu_millis - sum(g.request.cpu_millis for g in grants):
        short.append("Insufficient cpu")
    if asked.memory_bytes > machine.memory_bytes - sum(g.request.memory_bytes for g in grants):
        short.append("Insufficient memory")
    if asked.num_devices > len(free):
        short.append(f"Insufficient {DEVICE}")
    short += [f"Insufficient {name}" for name in asked.unknown]
    if short:
        return f"0/1 nodes are available: 1 {', '.join(short)}. {_arithmetic(asked, machine, grants, len(free))}"
    return Grant(asked, free[: asked.num_devices])


def _arithmetic(asked: RoomRequest, machine: NodeRoom, grants: list[Grant], num_free: int) -> str:
    cpu, memory = sum(g.request.cpu_millis for g in grants), sum(g.request.memory_bytes for g in grants)
    return (
        f"Asked: cpu {asked.cpu_millis}m, memory {asked.memory_bytes >> 20}Mi, devices {asked.num_devices}; "
        f"free here: cpu {machine.cpu_millis - cpu}m, memory {(machine.memory_bytes - memory) >> 20}Mi, devices {num_free}."
    )


def expected_workers(pools: Iterable[Mapping[str, Any]]) -> int:
    """Workers that will run at once, those of a rollout's surge included."""
    total = 0
    for pool in pools:
        spec = pool.get("spec", {})
        replicas, size = spec.get("replicas"), spec.get("groups", {}).get("size", 1)
        total += (1 if replicas is None else replicas) + spec.get("rollout", {}).get("maxSurge", 1) * size
    return total


def threads_each(cpu_millis: int, num_workers: int) -> int:
    """Engine threads of one worker where neither the pool nor a CPU limit says: the machine divided among those that will run."""
    return max(1, cpu_millis // 1000 // max(1, num_workers))
