"""The conditions of a pool. Each has a fixed set of reasons (REASONS), which the docs list and the tests check."""

from kvroll_operator.api.status import Condition
from kvroll_operator.rollout.facts.drains import of_rollout
from kvroll_operator.rollout.facts.observed import WorkerDrain
from kvroll_operator.rollout.facts.view import View
from kvroll_operator.rollout.show.gate import gate_condition
from kvroll_operator.rollout.show.phases import RolloutPhase, blocked, rollout_phase

REASONS: dict[str, tuple[str, ...]] = {
    "SpecAccepted": ("Valid", "NoImage", "UnknownField", "SpecUnreadable", "TemplateInvalid"),
    "Ready": ("FloorHeld", "BelowServingFloor", "SpecNotAccepted", "Deleting"),
    "Progressing": (
        "RolloutInProgress",
        "Settling",
        "Converged",
        "AwaitingApproval",
        "Paused",
        "Failed",
        "PartitionReached",
        "RolledBack",
        "ObjectUnreadable",
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
        "RolledBack",
        "WorkersMissing",
        "Deleting",
    ),
    "Paused": ("NotPaused", "PausedBySpec", "PausedByRequest"),
    "CapacityFeasible": ("Fits", "NoSurgeDevice", "NoDevice", "QuotaExceeded"),
    "GatePassed": ("NotRun", "Running", "Passed", "Failed", "Inconclusive"),
    "SessionsAtRisk": ("None", "SessionsLost", "DrainStalled", "WorkerGoneWhileDraining"),
    "Degraded": (
        "None",
        "ObjectUnreadable",
        "CreateRefused",
        "FailedRevisionPinned",
        "WorkerFailing",
        "WorkersUnknown",
        "WorkersOnLostNodes",
        "PassFailed",
    ),
    "Stalled": (
        "None",
        "ProgressDeadlineExceeded",
        "GateFailed",
        "GateInconclusive",
        "Aborted",
        "RolledBack",
        "NoDevice",
        "NoSurgeDevice",
        "ObjectUnreadable",
        "CreateRefused",
        "DrainStalled",
        "DrainCancelled",
    ),
}
STALLED_AFTER_SECONDS = 600
AT_RISK_SECONDS = 3600
"""Sessions lost outside of the rollout in force are shown as a risk for this long; the sum stays in status.sessions.lost."""


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
    return _condition(
        view,
        "SpecAccepted",
        problem is None,
        problem.reason if problem else "Valid",
        problem.message if problem else "",
    )


def _ready(view: View) -> Condition:
    desired, serving = view.desired, len(view.serving())
    floor = desired.num_workers - desired.max_unavailable * desired.group_size
    message = f"{serving} of {desired.num_workers} workers serve; the floor is {max(floor, 0)}"
    if desired.deleting:
        return _condition(view, "Ready", False, "Deleting", message)
    if desired.problem:
        return _condition(view, "Ready", False, "SpecNotAccepted", f"{desired.problem.message}; {message}")
    held = serving >= floor
    return _condition(view, "Ready", held, "FloorHeld" if held else "BelowServingFloor", message)


def is_settled(view: View) -> bool:
    """The plan is complete, it leads to the spec's revision, and exactly the wanted workers are there and serve."""
    target, plan = view.target, view.plan
    if view.desired.deleting or not view.is_planned or target is None:
        return False
    if not view.desired.num_workers and not view.pods:
        return (
            True  # no worker is wanted, and none is there; the next ones begin at the last good revision, in their turn
        )
    if not view.is_complete or plan.to != target.short:
        return False
    objects = [p for p in view.pods if not view.is_overdue(p)]
    at_target = [p for p in view.serving() if p.revision == target.short]
    return len(objects) == len(at_target) == view.desired.num_workers


def _is_whole(view: View) -> bool:
    """Exactly the wanted workers are there, and all serve."""
    objects = [p for p in view.pods if not view.is_overdue(p)]
    return len(objects) == len(view.serving()) == view.desired.num_workers


def _why_back(view: View) -> str:
    pin = view.target.record.pin if view.target else None
    why = f"{pin.reason} in {pin.plan}" if pin else ""
    return f"the spec's revision is not served: {why}; the pool is back at {view.stable}. Retry it or name another revision"


def _progressing(view: View) -> Condition:
    phase = rollout_phase(view)
    if view.desired.deleting:
        return _condition(view, "Progressing", True, "Deleting", f"{len(view.pods)} worker Pods are left")
    if phase is RolloutPhase.FAILED:
        return _condition(view, "Progressing", False, "Failed", view.plan.ended)
    if view.is_stopped:
        return _condition(view, "Progressing", False, "ObjectUnreadable")
    if phase is RolloutPhase.AWAITING_APPROVAL:
        return _condition(view, "Progressing", False, "AwaitingApproval", "see status.plan; then: kvroll approve")
    if phase is RolloutPhase.PAUSED:
        return _condition(view, "Progressing", False, "Paused")
    if phase is RolloutPhase.PARTITION_REACHED:
        return _condition(view, "Progressing", False, "PartitionReached")
    if is_settled(view):
        return _condition(view, "Progressing", False, "Converged")
    if phase is RolloutPhase.ROLLED_BACK and _is_whole(view):
        return _condition(view, "Progressing", False, "RolledBack", _why_back(view))
    return _condition(view, "Progressing", True, "Settling" if view.is_complete else "RolloutInProgress")


def _complete(view: View) -> Condition:
    if view.desired.deleting:
        return _condition(view, "RolloutComplete", False, "Deleting")
    if is_settled(view):
        return _condition(view, "RolloutComplete", True, "AllGroupsUpdated")
    phase = rollout_phase(view)
    if phase is RolloutPhase.ROLLED_BACK:
        return _condition(view, "RolloutComplete", False, "RolledBack", _why_back(view))
    if phase is RolloutPhase.NONE:
        return _condition(view, "RolloutComplete", False, "NotStarted")
    if phase is RolloutPhase.COMPLETE:
        at_target = view.target is not None and view.plan.to == view.target.short
        return _condition(view, "RolloutComplete", False, "WorkersMissing" if at_target else "NotStarted")
    return _condition(view, "RolloutComplete", False, str(phase))


def _paused(view: View) -> Condition:
    if view.desired.paused:
        return _condition(view, "Paused", True, "PausedBySpec")
    return _condition(view, "Paused", view.record.hold, "PausedByRequest" if view.record.hold else "NotPaused")


def _capacity(view: View) -> Condition:
    word = blocked(view)
    pending = sorted(p.name for p in view.live if view.is_unschedulable(p))
    quota = [r for r in view.refusals if r.reason == "QuotaExceeded"]
    if quota:
        return _condition(view, "CapacityFeasible", False, "QuotaExceeded", _refused(view))
    if word in ("NoSurgeDevice", "NoDevice"):
        return _condition(view, "CapacityFeasible", False, word, f"no node takes {', '.join(pending)}")
    return _condition(view, "CapacityFeasible", True, "Fits")


def _gate(view: View) -> Condition:
    return _condition(view, "GatePassed", *gate_condition(view))


def _at_risk(view: View) -> Condition:
    here = view.drains_of_plan
    mine = {d.uid for d in here}
    others = [
        d for d in view.drains if d.uid not in mine and view.now - (d.progressed_at or d.created) < AT_RISK_SECONDS
    ]
    lost, of_others = of_rollout(view).lost, sum(d.tally.lost for d in others)
    if lost or of_others:
        where = [f"{lost} in rollout {view.plan.id}"] if lost else []
        where += [f"{d.tally.lost} of {d.pod_name} ({d.reason})" for d in others if d.tally.lost]
        return _condition(view, "SessionsAtRisk", True, "SessionsLost", f"sessions lost: {', '.join(where)}"[:2000])
    gone = [d.pod_name for d in [*here, *others] if d.phase == "Gone" and d.remaining]
    if gone:
        return _condition(
            view, "SessionsAtRisk", True, "WorkerGoneWhileDraining", f"left to the gateway's replay: {', '.join(gone)}"
        )
    stuck = _stuck(view)
    if stuck:
        return _condition(view, "SessionsAtRisk", True, "DrainStalled", _why_stuck(stuck))
    return _condition(view, "SessionsAtRisk", False, "None")


def _stuck(view: View) -> list[WorkerDrain]:
    """Drains, of whatever reason, that get nowhere."""
    there = {p.uid for p in view.live}
    return [
        d
        for d in view.drains
        if not d.is_over
        and not d.is_deleting
        and d.pod_uid in there
        and view.now - max(d.progressed_at or 0.0, d.created) > min(STALLED_AFTER_SECONDS, d.policy.deadline_seconds)
    ]


def _why_stuck(stuck: list[WorkerDrain]) -> str:
    said = "; ".join(f"{d.pod_name}: {d.remaining} left {d.last_error}".strip() for d in stuck)
    return f"{said}; delete the WorkerDrain to cancel, or see sessions.onDrainDeadline"[:2000]


def _refused(view: View) -> str:
    return "; ".join(f"{r.what}: {r.reason}: {r.message}" for r in view.refusals)[:2000]


def _degraded(view: View) -> Condition:
    found = (
        ("ObjectUnreadable", [f"{u.what}: {u.why}" for u in view.unreadable]),
        ("CreateRefused", [f"{r.what}: {r.reason}: {r.message}" for r in view.refusals]),
        ("FailedRevisionPinned", _pinned(view)),
        ("WorkerFailing", sorted(f"{p.name}: {p.failure}" for p in view.live if p.failure)),
        (
            "WorkersUnknown",
            sorted(
                f"{p.name} is Ready but silent" for p in view.live if p.ready_since is not None and p.report is None
            ),
        ),
        ("WorkersOnLostNodes", sorted(f"{p.name} should be gone" for p in view.pods if view.is_overdue(p))),
    )
    for reason, said in found:
        if said:
            return _condition(view, "Degraded", True, reason, "; ".join(said)[:2000])
    return _condition(view, "Degraded", False, "None")


def _pinned(view: View) -> list[str]:
    pinned = sorted(r.short for r in view.revisions.values() if r.record.pin)
    return [f"pinned: {', '.join(pinned)}; retry it or name another revision"] if pinned else []


def _stalled(view: View) -> Condition:
    stuck = _stuck(view)
    if view.plan.ended and not view.is_complete:
        return _condition(view, "Stalled", True, view.plan.ended)
    word = blocked(view)
    if word in ("NoSurgeDevice", "NoDevice", "ObjectUnreadable", "CreateRefused", "DrainCancelled"):
        said = _refused(view) if word == "CreateRefused" else "; ".join(f"{u.what}: {u.why}" for u in view.unreadable)
        return _condition(view, "Stalled", True, word, said[:2000])
    if stuck:
        return _condition(view, "Stalled", True, "DrainStalled", _why_stuck(stuck))
    return _condition(view, "Stalled", False, "None")
