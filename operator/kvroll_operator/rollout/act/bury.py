"""What is left when a worker has gone: its object, its journal, and in the end what nobody needs to remember."""

from kvroll_operator.rollout.act.effects import (
    DeleteDrain,
    DeletePod,
    DeleteRevision,
    Effect,
    RecordDrain,
    ReleaseDrain,
)
from kvroll_operator.rollout.act.keep import RETRY_DEAD_SECONDS
from kvroll_operator.rollout.facts.view import View

KEPT_ROLLOUTS = 2
KEPT_OTHER_DRAINS = 5


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


def release(view: View) -> list[Effect]:
    """Lets WorkerDrains go that are counted. With the pool all go: its deletion counts no more, and nobody would be left to do it."""
    reports = {p.uid: p.report for p in view.live}
    effects: list[Effect] = []
    for drain in view.drains:
        is_counted = not view.is_planned or drain.uid in view.record.counted
        if drain.has_finalizer and (
            (view.desired.deleting and not reports) or (drain.is_deleting and (is_counted or view.desired.deleting))
        ):
            report = reports.get(drain.pod_uid)
            goes_on = report is not None and report.drain_id == drain.uid and not drain.is_over
            effects.append(
                ReleaseDrain(drain, report.instance_id, report.address) if report and goes_on else ReleaseDrain(drain)
            )
    return effects


def forget(view: View) -> list[Effect]:
    """Deletes what neither a decision nor the status of this and the previous rollout needs. Only while nothing is under way."""
    if not view.is_complete:
        return []
    return [*_drains(view), *_revisions(view)]


def _drains(view: View) -> list[Effect]:
    present = {p.uid for p in view.pods}
    over = [d for d in view.drains if d.pod_uid not in present and not d.is_deleting and d.phase in ("Sealed", "Gone")]
    plans = sorted((r.record.plan for r in view.revisions.values() if r.record.plan), key=lambda p: -p.seq)
    recent = {plan.id for plan in plans[:KEPT_ROLLOUTS]}
    others = sorted((d for d in over if not d.rollout), key=lambda d: (-d.created, d.name))
    stale = [d for d in over if d.rollout and d.rollout not in recent]
    return [DeleteDrain(d) for d in [*stale, *others[KEPT_OTHER_DRAINS:]]]


def _revisions(view: View) -> list[Effect]:
    plan = view.plan
    kept = {p.revision for p in view.pods} | {view.stable, plan.to, plan.from_revision, *plan.base.values()}
    if view.target is not None:
        kept.add(view.target.short)
    unused = sorted((r for r in view.revisions.values() if r.short not in kept), key=lambda r: (-r.number, r.name))
    return [DeleteRevision(r) for r in unused[view.desired.history_limit :]]
