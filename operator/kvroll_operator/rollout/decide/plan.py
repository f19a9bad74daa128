"""Decisions about the plan as a whole: the first one, requests, pins, failure, supersession, completion. Each returns one write or None."""

from dataclasses import replace

from kvroll_core.plan import OnFailure, Pin, Plan, PlanReason, RolloutRecord, plan_id
from kvroll_core.revision import revision_name
from kvroll_operator.rollout.decide.writes import CreateRevision, WriteRecord
from kvroll_operator.rollout.facts import gating
from kvroll_operator.rollout.facts.observed import Pod, Revision
from kvroll_operator.rollout.facts.view import Rolling, View

MAX_REVISIONS = 3
"""Revisions that may serve at once: the stable one, the target, and a middle one while its groups are rolled first."""


def resolve_target(view: View) -> CreateRevision | None:
    """The spec's revision is looked up by content; only a content that none has makes a new one."""
    content = view.desired.content
    if not content or view.target is not None:
        return None
    taken = {r.short: r.content for r in view.revisions.values()}
    number = 1 + max((r.number for r in view.revisions.values()), default=0)
    return CreateRevision(revision_name(content, taken), content, number, view.desired.has_default_image)


def first_plan(view: View) -> WriteRecord | None:
    """The first plan. Pods that are there without any plan (annotations lost) are its base, so that they are rolled, not replaced."""
    if view.target is None:
        return None
    reason = PlanReason.UPDATE if view.live else PlanReason.INITIAL
    counts = [p.revision for p in view.live]
    before = max(set(counts), key=lambda r: (counts.count(r), r)) if counts else ""
    best = {g: _best(view, g) for g in view.groups}
    return _write(view, view.target, reason, before, {g: b.revision if b else "" for g, b in best.items()})


def heed_request(view: Rolling) -> WriteRecord | None:
    """Turns the pool's request annotation `<verb>@<rollout id>`, or `drain@<pod UID>`, into a record; a request about another rollout,
    or a Pod that is not there, is ignored.
    """
    verb, _, rollout = view.desired.request.partition("@")
    if verb == "retry":
        return _retry(view, rollout)
    if verb == "drain":
        return _drain(view, rollout)
    if view.plan.id != rollout:
        return None
    if verb == "approve" and view.is_unapproved:
        return WriteRecord(view.holder, replace(view.record, approved=rollout))
    if verb in ("pause", "resume") and view.record.hold != (verb == "pause"):
        return WriteRecord(view.holder, replace(view.record, hold=verb == "pause"))
    # Other plans lead to the last good revision or have none behind them: there is nothing to go back to.
    is_update = view.plan.reason is PlanReason.UPDATE
    pin = view.record.pin
    if verb == "rollback" and is_update and pin is not None and pin.plan == rollout and pin.then is OnFailure.PAUSE:
        # It failed or was aborted, and holds there: now its finished groups go back, too.
        return WriteRecord(view.holder, replace(view.record, pin=replace(pin, then=OnFailure.ROLLBACK)))
    if verb in ("abort", "rollback") and is_update and not view.is_complete and not view.plan.ended:
        return end_plan(
            view,
            "Aborted" if verb == "abort" else "RolledBack",
            OnFailure.PAUSE if verb == "abort" else OnFailure.ROLLBACK,
        )
    return None


def _retry(view: View, rollout: str) -> WriteRecord | None:
    for revision in view.revisions.values():
        pin = revision.record.pin
        if pin is not None and pin.plan == rollout:
            return WriteRecord(revision, replace(revision.record, pin=None))
    return None


def _drain(view: Rolling, pod_uid: str) -> WriteRecord | None:
    """The worker shall go, sessions and all; its slot is filled again first, as far as maxUnavailable asks for it."""
    live = {p.uid for p in view.live}
    if pod_uid not in live or pod_uid in view.record.leaving or pod_uid in view.record.cancelled:
        return None
    return WriteRecord(view.holder, replace(view.record, leaving=(view.record.leaving & live) | {pod_uid}))


def drop_pins(view: Rolling) -> WriteRecord | None:
    """A revision that the spec does not name any more may be tried again later."""
    for revision in view.revisions.values():
        if revision.record.pin is not None and view.target is not None and revision.short != view.target.short:
            return WriteRecord(revision, replace(revision.record, pin=None))
    return None


def end_plan(view: Rolling, reason: str, then: OnFailure) -> WriteRecord:
    """Ends the plan in force in one write: no group stays in turn, and its target is pinned."""
    ended = replace(view.plan, ended=reason)
    record = replace(view.record, plan=ended, turn=(), hold=False, pin=Pin(ended.id, reason, then))
    return WriteRecord(view.holder, record)


def supersede(view: Rolling) -> WriteRecord | None:
    """Writes the plan that takes over: back to the last good revision at once, to another one at a boundary."""
    target, plan = view.effective_target, view.plan
    if target is None or (target.short == plan.to and not plan.ended):
        return None
    if not view.is_complete and target.short == view.stable:
        pinned = view.target is not None and view.target.short != target.short
        return _take_over(view, target, PlanReason.ROLLBACK if pinned else PlanReason.REVERT)
    if view.is_queued:
        return None
    if len(_revisions_after(view, target)) <= MAX_REVISIONS:
        return _take_over(view, target, PlanReason.UPDATE)
    stable = view.revisions.get(view.stable)
    if plan.reason is PlanReason.MAKE_ROOM or stable is None:
        return None
    return _take_over(view, stable, PlanReason.MAKE_ROOM)


def complete(view: Rolling) -> WriteRecord | None:
    """All groups through, all workers serve, and no pod object of another revision is left."""
    if view.is_complete or view.plan.ended or not view.groups:
        return None
    if view.is_held_back or not set(view.groups) <= view.record.done:
        return None
    if any(p.revision != view.plan.to for p in view.pods if not view.is_overdue(p)):
        return None
    at_plan = [p for p in view.serving() if p.revision == view.plan.to]
    if len(at_plan) < view.desired.num_workers or gating.is_final_owed(view):
        return None
    finished = replace(view.plan, finished_at=view.now)
    record = view.record
    return WriteRecord(
        view.holder,
        RolloutRecord(
            plan=finished,
            done=record.done,
            stable=finished.seq,
            price=record.price,
            leaving=record.leaving,
            evidence=record.evidence,
            cancelled=record.cancelled,
            tally=record.tally,
            lost=record.lost,
            counted=record.counted,
        ),
    )


def _revisions_after(view: Rolling, target: Revision) -> set[str]:
    serving = {p.revision for p in view.live if p.admitted}
    return serving | {_base_for(view, g) for g in view.groups} - {""} | {target.short}


def _take_over(view: Rolling, target: Revision, reason: PlanReason) -> WriteRecord:
    return _write(view, target, reason, view.stable or view.plan.to, {g: _base_for(view, g) for g in view.groups})


def _write(view: View, target: Revision, reason: PlanReason, before: str, base: dict[int, str]) -> WriteRecord:
    """The plan to `target`, from `before`; `base` is what each group falls back to, empty for none."""
    seq = 1 + max((r.record.plan.seq for r in view.revisions.values() if r.record.plan), default=0)
    plan = Plan(
        id=plan_id(
            pool_uid=view.desired.uid, from_revision=before, to=target.short, policy=repr(view.desired.policy), seq=seq
        ),
        seq=seq,
        to=target.short,
        reason=reason,
        started_at=view.now,
        from_revision=before,
        base={g: revision for g, revision in base.items() if revision},
        order=tuple(sorted(view.groups, key=lambda g: (base[g] in ("", view.stable), view.sessions(g), g))),
    )
    done = frozenset(g for g in view.groups if _is_all_at(view, g, target.short))
    before_it = view.record
    record = RolloutRecord(
        plan=plan,
        done=done,
        stable=target.record.stable,
        pin=target.record.pin,
        leaving=before_it.leaving,
        cancelled=before_it.cancelled,
        lost=before_it.lost,
        counted=before_it.counted,
    )
    return WriteRecord(target, record)


def _best(view: View, group: int) -> Pod | None:
    live = view.live_of(group)
    return max(live, key=lambda p: (view.serves(p), p.admitted is True, p.scheduled, -p.created, p.name), default=None)


def _base_for(view: Rolling, group: int) -> str:
    """What a group falls back to under a new plan: what serves, else what it shall be now."""
    best = _best(view, group)
    if group in view.turns and best is not None and view.serves(best):
        return best.revision
    if group in view.turns:
        return view.base(group)
    if group in view.record.done or view.is_complete:
        return view.plan.to
    # A group that never had a revision before the plan is what the plan made of it, if anything.
    return view.base(group) or (best.revision if best else "")


def _is_all_at(view: View, group: int, revision: str) -> bool:
    live = [p for p in view.pods_of(group) if not view.is_overdue(p)]
    return (
        bool(live)
        and all(p.revision == revision for p in live)
        and all(view.keeper(s, revision) for s in view.slots(group))
    )
