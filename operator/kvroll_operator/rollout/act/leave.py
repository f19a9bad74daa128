"""The third act: one guarded way out for every Pod that shall go. Close, drain, seal, delete."""

from dataclasses import replace

from kvroll_core.plan import Step
from kvroll_operator.rollout.act.effects import (
    CreateDrain,
    DeletePod,
    DrainWorker,
    Effect,
    LabelAdmitted,
    RecordDrain,
    SealWorker,
    SetAdmission,
    Target,
    Unprotect,
)
from kvroll_operator.rollout.act.guard import ServingFloor
from kvroll_operator.rollout.act.keep import RETRY_DEAD_SECONDS
from kvroll_operator.rollout.facts import gating
from kvroll_operator.rollout.facts.observed import Drain, Pod, Report
from kvroll_operator.rollout.facts.view import View


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


def is_late(view: View, drain: Drain) -> bool:
    """No session has moved or ended for as long as the policy bears."""
    return view.now - max(drain.created, drain.progressed_at or 0.0) > drain.policy.deadline_seconds


def _expire(drain: Drain, report: Report | None) -> RecordDrain:
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
    rolls = plan is not None and pod.group in view.group_ids
    return CreateDrain(
        pod, "Rollout" if rolls else "Scale", plan.id if plan is not None and rolls else "", view.desired.policy
    )


def _push(
    view: View, pod: Pod, report: Report, drain: Drain, stays: list[Pod], parallel: dict[str, int]
) -> list[Effect]:
    if report.sealed or (report.sessions == 0 and report.pending == 0):
        return [SealWorker(pod, report.instance_id, report.address, drain)]
    moves = parallel.get(drain.uid, 0)
    if not moves:
        return []
    return [DrainWorker(pod, report.instance_id, report.address, drain, targets(view, pod, stays), moves)]


def shares(view: View) -> dict[str, int]:
    """Moves at a time of each drain under way, by UID: the pool's limit is handed out, the oldest drain first; the others wait."""
    pods = {p.uid: p for p in view.live if p.report is not None and p.report.sessions}
    left = view.desired.policy.parallel
    handed: dict[str, int] = {}
    for drain in sorted(view.drains, key=lambda d: (d.created, d.name)):
        if drain.pod_uid in pods and not drain.is_deleting and not drain.is_over:
            handed[drain.uid] = min(left, drain.policy.per_worker)
            left -= handed[drain.uid]
    return handed


def targets(view: View, pod: Pod, stays: list[Pod]) -> tuple[Target, ...]:
    """Serving workers that stay: those of the wanted revision first, then the emptiest; of equals the one of the Pod's own group, so that
    groups which drain together do not all choose the same."""
    wanted = view.plan.to if view.plan else ""
    able = [p for p in stays if p.uid != pod.uid and view.serves(p)]
    able.sort(key=lambda p: (p.revision != wanted, p.report.sessions if p.report else 0, p.group != pod.group, p.name))
    return tuple(
        Target(p.name, p.report.instance_id, p.report.address, p.revision == pod.revision) for p in able if p.report
    )


def _journal(view: View, drain: Drain, report: Report) -> list[Effect]:
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


def bury(view: View) -> list[Effect]:
    """Deletes the objects of Pods that have ended, and closes the journals of Pods that went without a seal."""
    effects: list[Effect] = [
        DeletePod(p, "the kubelet reports that it ended")
        for p in view.pods
        if p.is_dead and p.gone_by is None and (view.desired.deleting or view.now - p.created >= RETRY_DEAD_SECONDS)
    ]
    present = {p.uid for p in view.pods if not view.is_overdue(p)}
    for drain in view.drains:
        if drain.pod_uid not in present and not drain.is_over and not drain.is_deleting:
            phase = "Sealed" if drain.receipt else "Gone"
            effects.append(
                RecordDrain(drain, phase, drain.tally, drain.remaining, drain.last_error, drain.progressed_at)
            )
    return effects
