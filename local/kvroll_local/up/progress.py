"""How far a site is with its pools, from what the agent knows to be alive: never from what an older status still says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """One pool. `problems` are sentences for people."""

    pool: str
    num_ready: int
    num_wanted: int
    rollout: str
    is_complete: bool
    problems: tuple[str, ...]

    def __str__(self) -> str:
        rollout = f", {self.rollout}" if self.rollout else ""
        said = f"{self.pool}: {self.num_ready} of {self.num_wanted} workers serve{rollout}"
        return "; ".join([said, *self.problems])


def progress(pool: Json, pods: Sequence[Json]) -> Progress:
    """Complete: the operator says so of this generation, and as many workers as wanted are ready and admitted now."""
    metadata, spec, status = pool["metadata"], pool.get("spec", {}), pool.get("status", {})
    replicas = spec.get("replicas")
    num_wanted = 1 if replicas is None else int(replicas)
    num_ready = sum(_serves(pod) for pod in pods)
    done = [c for c in status.get("conditions", []) if c["type"] == "RolloutComplete" and c["status"] == "True"]
    is_complete = any(
        c.get("observedGeneration", status.get("observedGeneration")) == metadata.get("generation") for c in done
    )
    rolling = status.get("rollout", {})
    is_rolling = num_ready and rolling.get("phase") not in (None, "Complete")
    rollout = " ".join(str(rolling[part]) for part in ("phase", "group") if rolling.get(part)) if is_rolling else ""
    problems = tuple(dict.fromkeys(problem for pod in pods if (problem := _problem(pod))))
    return Progress(
        str(metadata["name"]), num_ready, num_wanted, rollout, is_complete and num_ready >= num_wanted, problems
    )


def _serves(pod: Json) -> bool:
    metadata = pod["metadata"]
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))
    return (
        ready
        and metadata.get("labels", {}).get("kvroll.dev/admitted") == "true"
        and "deletionTimestamp" not in metadata
    )


def _problem(pod: Json) -> str:
    """Why a worker does not come up: no room, or how it last ended."""
    status, name = pod.get("status", {}), pod["metadata"]["name"]
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{name} waits: {condition.get('message', condition.get('reason', ''))}"
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "CrashLoopBackOff"):
            return f"{name}: {waiting.get('message', waiting['reason'])}"
        for state in (container.get("state", {}), container.get("lastState", {})):
            ended = state.get("terminated", {})
            if ended.get("exitCode") and not container.get("ready"):
                lines = (ended.get("message") or ended.get("reason") or "").strip().splitlines()
                return f"{name} ended with code {ended['exitCode']}: {lines[-1] if lines else ''}"
    return ""
