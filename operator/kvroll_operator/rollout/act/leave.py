"""The third act: one guarded way out for every Pod that shall go. Close, drain, seal, delete."""

from dataclasses import replace

from kvroll_core.plan import Step
from kvroll_operator.rollout.act.effects import (
    CreateDrain,
    DeletePod,
    DrainTarget,
    DrainWorker,
    Effect,
    LabelAdmitted,
    RecordDrain,
    SealWorker,
    SetAdmission,
    Unprotect,
)
from kvroll_operator.rollout.facts import gating
from kvroll_operator.rollout.facts.drains import is_late
from kvroll_operator.rollout.facts.observed import Pod, Report, WorkerDrain
from kvroll_operator.rollout.facts.view import View


class ServingFloor:
    """The one thing that every voluntary close asks, on every path: a running count of who serves in this pass, which is what was observed
    less what the pass itself has closed."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._serving = {p.uid: p for p in view.serving()}

    def close(self, pod: Pod) -> bool:
        """Whether `pod` may be closed now; if so, it counts as closed from here on."""
        if pod.uid not in self._serving:
            return True
        desired = self._view.desired
        turn = self._view.turns.get(pod.group)
        if turn is not None and turn.step is Step.DRAIN_FIRST:
            left = sum(1 for p in self._serving.values() if p.group != pod.group)
            allowed_groups = max(1, desired.max_unavailable)
        else:
            left = len(self._serving) - 1
            allowed_groups = desired.max_unavailable
        if left < desired.num_workers - allowed_groups * desired.group_size:
            return False
        del self._serving[pod.uid]
        return True


def leave(view: View, pod: Pod, floor: ServingFloor, stays: list[Pod], parallel: dict[str, int]) -> list[Effect]:
    """The next step of a live Pod's way out; nothing while it must wait. `parallel` are the moves at a time that its drain may make."""
    report, drain = pod.report, view.drain_of(pod)
    if pod.is_mislabelled:
        return []  # that is written first
    if pod.terminated:
        return [DeletePod(pod, "the kubelet reports that its container ended")]
    if pod.admitted is None and (report is not None or not view.was_ready(pod)):
        return [DeletePod(pod, "never admitted")]
    if pod.admitted is not False:
        may = not _is_held_by_pause(view, pod) and not gating.is_closing_held(view, pod) and floor.close(pod)
        return [LabelAdmitted(pod, False)] if may else []
    if report is not None and report.admitting:
        return [SetAdmission(pod, report.instance_id, report.address, False)]
    if drain is None:
        # Also for a worker that does not answer: its deadline must begin. One that is being deleted goes first.
        return [] if any(d.pod_uid == pod.uid for d in view.drains) else [_new_drain(view, pod)]
    if report is not None and drain.receipt == report.instance_id:
        return [DeletePod(pod, f"sealed by {drain.receipt}")] if not pod.protected else [Unprotect(pod)]
    if drain.phase == "Expired":
        return [DeletePod(pod, f"its drain was late: {drain.last_error}", may_hold_sessions=True)]
    if parallel.get(drain.uid) != 0 and is_late(view, drain) and (view.desired.deleting or drain.policy.drops_late):
        return [_expire(drain, report)]
    if report is None:
        return []
    return [*_journal(view, drain, report), *_push(view, pod, report, drain, stays, parallel)]


def _expire(drain: WorkerDrain, report: Report | None) -> RecordDrain:
    """Counts what is left as lost. Of a worker that has never answered since, nobody knows how much that is."""
    left = report.sessions if report is not None else drain.remaining
    tally = drain.tally if report is None else drain.tally.largest(report.tally)
    silent = "" if report is not None else ", and the worker does not answer"
    why = f"{left} sessions let go after {drain.policy.deadline_seconds} s without progress{silent}"
    return RecordDrain(drain, "Expired", replace(tally, lost=tally.lost + left), 0, why, drain.progressed_at)


def _is_held_by_pause(view: View, pod: Pod) -> bool:
    """A pause holds the first close of a group that drains first."""
    turn = view.turns.get(pod.group)
    return bool(turn and turn.step is Step.DRAIN_FIRST and view.is_paused and not view.is_committed(turn))


def _new_drain(view: View, pod: Pod) -> CreateDrain:
    plan = view.plan
    if view.desired.deleting:
        return CreateDrain(pod, "Delete", "", view.desired.policy)
    if view.is_asked_to_leave(pod):
        return CreateDrain(pod, "Request", "", view.desired.policy)
    rolls = pod.group in view.group_ids
    return CreateDrain(pod, "Rollout" if rolls else "Scale", plan.id if rolls else "", view.desired.policy)


def _push(
    view: View, pod: Pod, report: Report, drain: WorkerDrain, stays: list[Pod], parallel: dict[str, int]
) -> list[Effect]:
    if report.sealed or (report.sessions == 0 and report.pending == 0):
        return [SealWorker(pod, report.instance_id, report.address, drain)]
    moves = parallel.get(drain.uid, 0)
    if not moves:
        return []
    return [DrainWorker(pod, report.instance_id, report.address, drain, targets(view, pod, stays), moves)]


def targets(view: View, pod: Pod, stays: list[Pod]) -> tuple[DrainTarget, ...]:
    """Serving workers that stay: those of the wanted revision first, then the emptiest; of equals the one of the Pod's own group, so that
    groups which drain together do not all choose the same."""
    wanted = view.plan.to
    able = [p for p in stays if p.uid != pod.uid and view.serves(p)]
    able.sort(key=lambda p: (p.revision != wanted, p.report.sessions if p.report else 0, p.group != pod.group, p.name))
    return tuple(
        DrainTarget(p.name, p.report.instance_id, p.report.address, p.revision == pod.revision)
        for p in able
        if p.report
    )


def _journal(view: View, drain: WorkerDrain, report: Report) -> list[Effect]:
    if report.drain_id != drain.uid:
        return []
    tally = drain.tally.largest(report.tally)
    if (tally, report.remaining, report.last_error, "Draining") == (
        drain.tally,
        drain.remaining,
        drain.last_error,
        drain.phase,
    ):
        return []
    moved = tally != drain.tally or drain.phase == "Pending"
    return [
        RecordDrain(
            drain, "Draining", tally, report.remaining, report.last_error, view.now if moved else drain.progressed_at
        )
    ]
