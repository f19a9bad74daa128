"""The conditions of a pool. Each has a fixed set of reasons (REASONS), which the docs list and the tests check."""

from kvroll_operator.api.status import Condition
from kvroll_operator.rollout.gate_view import gate_condition
from kvroll_operator.rollout.phases import RolloutPhase, blocked, rollout_phase
from kvroll_operator.rollout.view import View

REASONS: dict[str, tuple[str, ...]] = {
    "SpecAccepted": ("Valid", "NoImage"),
    "Ready": ("FloorHeld", "BelowServingFloor", "SpecNotAccepted", "Deleting"),
    "Progressing": (
        "RolloutInProgress",
        "Settling",
        "Converged",
        "AwaitingApproval",
        "Paused",
        "Failed",
        "PartitionReached",
        "Deleting",
    ),
    "RolloutComplete": (
        "AllGroupsUpdated",
        "NotStarted",
        "Rolling",
        "Queued",
        "AwaitingApproval",
        "Paused",
        "PartitionReached",
        "Failed",
        "WorkersMissing",
        "Deleting",
    ),
    "Paused": ("NotPaused", "PausedBySpec", "PausedByRequest"),
    "CapacityFeasible": ("Fits", "NoSurgeDevice", "NoDevice"),
    "GatePassed": ("NotRun", "Running", "Passed", "Failed", "Inconclusive"),
    "SessionsAtRisk": ("None", "SessionsLost", "DrainStalled", "WorkerGoneWhileDraining"),
    "Degraded": ("None", "FailedRevisionPinned", "WorkerFailing", "WorkersUnknown"),
    "Stalled": (
        "None",
        "ProgressDeadlineExceeded",
        "GateFailed",
        "GateInconclusive",
        "Aborted",
        "RolledBack",
        "NoDevice",
        "NoSurgeDevice",
    ),
}
STALLED_AFTER_SECONDS = 600


def conditions(view: View) -> list[Condition]:
    """All conditions, in the table's order, without transition times."""
    made = [_accepted, _ready, _progressing, _complete, _paused, _capacity, _gate, _at_risk, _degraded, _stalled]
    return [make(view) for make in made]


def _condition(view: View, kind: str, status: bool | None, reason: str, message: str = "") -> Condition:
    assert reason in REASONS[kind], f"{kind} has no reason {reason}"
    word = "Unknown" if status is None else str(status)
    return Condition(
        type=kind, status=word, reason=reason, message=message, observed_generation=view.desired.generation
    )


def _accepted(view: View) -> Condition:
    problem = view.desired.problem
    return _condition(view, "SpecAccepted", not problem, "NoImage" if problem else "Valid", problem)


def _ready(view: View) -> Condition:
    desired, serving = view.desired, len(view.serving())
    floor = desired.num_workers - desired.max_unavailable * desired.group_size
    message = f"{serving} of {desired.num_workers} workers serve; the floor is {max(floor, 0)}"
    if desired.deleting:
        return _condition(view, "Ready", False, "Deleting", message)
    if desired.problem:
        return _condition(view, "Ready", False, "SpecNotAccepted", desired.problem)
    held = serving >= floor
    return _condition(view, "Ready", held, "FloorHeld" if held else "BelowServingFloor", message)


def is_settled(view: View) -> bool:
    """The plan is complete, it leads to the spec's revision, and exactly the wanted workers are there and serve."""
    target, plan = view.target, view.plan
    if view.desired.deleting or plan is None or target is None or not view.is_complete or plan.to != target.short:
        return False
    objects = [p for p in view.pods if not view.is_overdue(p)]
    at_target = [p for p in view.serving() if p.revision == target.short]
    return len(objects) == len(at_target) == view.desired.num_workers


def _progressing(view: View) -> Condition:
    phase = rollout_phase(view)
    if view.desired.deleting:
        return _condition(view, "Progressing", True, "Deleting", f"{len(view.pods)} worker Pods are left")
    if phase is RolloutPhase.FAILED:
        return _condition(view, "Progressing", False, "Failed", view.plan.ended if view.plan else "")
    if phase is RolloutPhase.AWAITING_APPROVAL:
        return _condition(view, "Progressing", False, "AwaitingApproval", "see status.plan; then: kvroll approve")
    if phase is RolloutPhase.PAUSED:
        return _condition(view, "Progressing", False, "Paused")
    if phase is RolloutPhase.PARTITION_REACHED:
        return _condition(view, "Progressing", False, "PartitionReached")
    if is_settled(view):
        return _condition(view, "Progressing", False, "Converged")
    return _condition(view, "Progressing", True, "Settling" if phase is RolloutPhase.COMPLETE else "RolloutInProgress")


def _complete(view: View) -> Condition:
    if view.desired.deleting:
        return _condition(view, "RolloutComplete", False, "Deleting")
    if is_settled(view):
        return _condition(view, "RolloutComplete", True, "AllGroupsUpdated")
    phase = rollout_phase(view)
    if phase is RolloutPhase.NONE:
        return _condition(view, "RolloutComplete", False, "NotStarted")
    if phase is RolloutPhase.COMPLETE:
        at_target = view.target is not None and view.plan is not None and view.plan.to == view.target.short
        return _condition(view, "RolloutComplete", False, "WorkersMissing" if at_target else "NotStarted")
    return _condition(view, "RolloutComplete", False, str(phase))


def _paused(view: View) -> Condition:
    if view.desired.paused:
        return _condition(view, "Paused", True, "PausedBySpec")
    return _condition(view, "Paused", view.record.hold, "PausedByRequest" if view.record.hold else "NotPaused")


def _capacity(view: View) -> Condition:
    word = blocked(view)
    pending = sorted(p.name for p in view.live if view.is_unschedulable(p))
    if word in ("NoSurgeDevice", "NoDevice"):
        return _condition(view, "CapacityFeasible", False, word, f"no node takes {', '.join(pending)}")
    return _condition(view, "CapacityFeasible", True, "Fits")


def _gate(view: View) -> Condition:
    return _condition(view, "GatePassed", *gate_condition(view))


def _at_risk(view: View) -> Condition:
    plan = view.plan
    drains = [d for d in view.drains if plan is not None and d.rollout == plan.id]
    lost = sum(d.tally.lost for d in drains)
    if lost:
        return _condition(
            view, "SessionsAtRisk", True, "SessionsLost", f"{lost} sessions lost in rollout {plan.id if plan else ''}"
        )
    gone = [d.pod_name for d in drains if d.phase == "Gone" and d.remaining]
    if gone:
        return _condition(
            view, "SessionsAtRisk", True, "WorkerGoneWhileDraining", f"left to the gateway's replay: {', '.join(gone)}"
        )
    stuck = [
        d for d in drains if d.phase == "Draining" and view.now - (d.progressed_at or d.created) > STALLED_AFTER_SECONDS
    ]
    if stuck:
        why = "; ".join(f"{d.pod_name}: {d.remaining} left {d.last_error}".strip() for d in stuck)
        return _condition(view, "SessionsAtRisk", True, "DrainStalled", why)
    return _condition(view, "SessionsAtRisk", False, "None")


def _degraded(view: View) -> Condition:
    pinned = sorted(r.short for r in view.revisions.values() if r.record.pin)
    if pinned:
        return _condition(
            view,
            "Degraded",
            True,
            "FailedRevisionPinned",
            f"pinned: {', '.join(pinned)}; retry it or name another revision",
        )
    failing = sorted(f"{p.name}: {p.failure}" for p in view.live if p.failure)
    if failing:
        return _condition(view, "Degraded", True, "WorkerFailing", "; ".join(failing)[:1000])
    unknown = sorted(p.name for p in view.live if p.ready_since is not None and p.report is None)
    if unknown:
        return _condition(view, "Degraded", True, "WorkersUnknown", f"Ready but silent: {', '.join(unknown)}")
    return _condition(view, "Degraded", False, "None")


def _stalled(view: View) -> Condition:
    if view.plan is not None and view.plan.ended:
        return _condition(view, "Stalled", True, view.plan.ended)
    word = blocked(view)
    if word in ("NoSurgeDevice", "NoDevice"):
        return _condition(view, "Stalled", True, word)
    return _condition(view, "Stalled", False, "None")
