"""A Pod's status as a kubelet and a scheduler would write it."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]
NODE, HOST_IP = "local", "127.0.0.1"
_READY = ("ContainersReady", "Ready")


def container_status(
    spec: Mapping[str, Any], *, state: Json, last: Json | None, ready: bool, started: bool, restarts: int, pid: int
) -> Json:
    """One entry of containerStatuses; `last` is how the run before the present state ended."""
    image = spec.get("image", "")
    return {
        "name": spec["name"], "image": image, "imageID": image, "ready": ready, "started": started, "restartCount": restarts,
        "state": state, "lastState": {"terminated": last} if last and "terminated" not in state else {},
        "containerID": f"process://{pid}" if pid else "",
    }  # fmt: skip


def unschedulable(reason: str, shown: Mapping[str, Any], now: str) -> Json:
    """A Pod that no node takes yet."""
    return {
        "phase": "Pending", "qosClass": "Burstable",
        "conditions": _conditions({"PodScheduled": False}, shown, now, {"PodScheduled": ("Unschedulable", reason)}),
    }  # fmt: skip


def running(ip: str, containers: Sequence[Json], policy: str, shown: Mapping[str, Any], now: str) -> Json:
    """A Pod that this node holds."""
    phase = _phase(containers, policy)
    ready = bool(containers) and all(c["ready"] for c in containers)
    unready = ", ".join(c["name"] for c in containers if not c["ready"])
    why = (
        ("PodCompleted", "")
        if phase == "Succeeded"
        else ("ContainersNotReady", f"containers with unready status: [{unready}]")
    )
    wanted = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    return {
        "phase": phase, "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": HOST_IP, "hostIPs": [{"ip": HOST_IP}], "qosClass": "Burstable",
        "startTime": shown.get("startTime") or now, "containerStatuses": list(containers),
        "conditions": _conditions(wanted, shown, now, dict.fromkeys(_READY, why) if not ready else {}),
    }  # fmt: skip


def _phase(containers: Sequence[Json], policy: str) -> str:
    """Pending until every container was started once; Succeeded or Failed where none will be started again."""
    states = [c["state"] for c in containers]
    codes = [s["terminated"]["exitCode"] for s in states if "terminated" in s]
    if len(codes) == len(states) and (
        policy == "Never" or (policy == "OnFailure" and not any(codes)) or policy == "Deleted"
    ):
        return "Failed" if any(codes) else "Succeeded"
    never_ran = any("waiting" in c["state"] and not c["lastState"] for c in containers)
    return "Pending" if never_ran else "Running"


def _conditions(
    wanted: Mapping[str, bool], shown: Mapping[str, Any], now: str, reasons: Mapping[str, tuple[str, str]]
) -> list[Json]:
    """A condition's time is that of its last change of status, not of its last mention."""
    before = {c["type"]: c for c in shown.get("conditions", [])}
    made = []
    for kind, true in wanted.items():
        word = "True" if true else "False"
        old = before.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == word else now
        reason, message = reasons.get(kind, ("", ""))
        said = {name: text for name, text in (("reason", reason), ("message", message)) if text}
        made.append({"type": kind, "status": word, "lastTransitionTime": since, **said})
    return made
