"""What may be forgotten: WorkerDrains of earlier rollouts, ControllerRevisions beyond the limit."""

from kvroll_operator.rollout.act.effects import DeleteDrain, DeleteRevision, Effect
from kvroll_operator.rollout.facts.view import View

KEPT_ROLLOUTS = 2
KEPT_OTHER_DRAINS = 5


def forget(view: View) -> list[Effect]:
    """Deletes what neither a decision nor the status of this and the previous rollout needs. Only while nothing is under way."""
    if view.plan is None or not view.is_complete:
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
    kept = {p.revision for p in view.pods} | {view.stable}
    if view.plan is not None:
        kept |= {view.plan.to, view.plan.from_revision, *view.plan.base.values()}
    if view.target is not None:
        kept.add(view.target.short)
    unused = sorted((r for r in view.revisions.values() if r.short not in kept), key=lambda r: (-r.number, r.name))
    return [DeleteRevision(r) for r in unused[view.desired.history_limit :]]
