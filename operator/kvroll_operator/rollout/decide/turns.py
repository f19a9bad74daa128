"""Decisions about single groups: which enters, which is through, which took too long. Each returns one write or None."""

from collections.abc import Mapping
from dataclasses import replace

from kvroll_core.plan import OnFailure, PlanReason, RolloutRecord, Step, Turn
from kvroll_operator.rollout.decide.plan import end_plan
from kvroll_operator.rollout.decide.writes import WriteRecord
from kvroll_operator.rollout.facts import gating
from kvroll_operator.rollout.facts.drains import shares
from kvroll_operator.rollout.facts.price import price_now
from kvroll_operator.rollout.facts.view import Rolling


def record_finished(view: Rolling) -> WriteRecord | None:
    """Groups whose old pods are gone and whose new workers have settled are done; groups that left the pool leave the turn."""
    if view.is_complete or view.plan.ended:
        return None
    groups = frozenset(view.groups)
    through = frozenset(g for g in groups - view.record.done if _is_through(view, g))
    turn = tuple(t for t in view.record.turn if t.group not in through and t.group in groups)
    # A group that was scaled away and comes again is changed again, in its turn: it may not be what the partition leaves room for by then.
    done = (view.record.done & groups) | through
    if done == view.record.done and turn == view.record.turn:
        return None
    return WriteRecord(view.holder, replace(view.record, done=done, turn=turn))


def _is_through(view: Rolling, group: int) -> bool:
    to = view.plan.to
    if view.want(group) != to or gating.owed_by(view, group):
        return False
    return not view.old_objects(group) and view.is_group_settled(group, to)


def fail(view: Rolling) -> WriteRecord | None:
    """Ends an Update in which a group in turn has made no progress for too long, whatever the spec says now.

    Other plans have nothing left to fall back to and keep trying. The clock stands while no device is free, and an uncommitted group of a
    paused pool is not judged.
    """
    if not view.is_update:
        return None
    for turn in view.turns.values():
        if view.is_paused and not view.is_committed(turn):
            continue
        if lacks_device(view, turn):
            continue
        if view.now - last_progress(view, turn) > _deadline_seconds(view, turn):
            return end_plan(view, "ProgressDeadlineExceeded", then_on_failure(view))
    return None


def _deadline_seconds(view: Rolling, turn: Turn) -> int:
    """A group that must be judged has the gate's own time too."""
    gate, desired = view.desired.gate, view.desired
    owes = gate is not None and bool(gating.owed_by(view, turn.group))
    return desired.progress_deadline_seconds + (gate.timeout_seconds if owes and gate else 0)


def then_on_failure(view: Rolling) -> OnFailure:
    """What the spec wants after a failure, as far as there is a revision to go back to."""
    can_go_back = bool(view.stable) and view.stable != view.plan.to
    return view.desired.on_failure if can_go_back else OnFailure.PAUSE


def lacks_device(view: Rolling, turn: Turn) -> bool:
    """A new worker of the group waits for a node for too long."""
    to = view.plan.to
    return any(view.is_unschedulable(p) for p in view.live_of(turn.group) if p.revision == to)


def last_progress(view: Rolling, turn: Turn) -> float:
    """When the group last got on: it entered, it was judged, or a session of its old workers moved or ended.

    Not when a new worker was made or became Ready: one that dies and comes again would never be late.
    """
    mine = [d for d in view.drains_of_plan if d.group == turn.group]
    handed = shares(view)
    # A drain that waits for others gets on as they do.
    counted = view.drains if any(handed.get(d.uid) == 0 for d in mine) else mine
    drains = [d.progressed_at or d.created for d in counted]
    judged = [e.at for e in view.record.evidence if e.point in (gating.CANARY, gating.point_of(turn.group))]
    return max([turn.at, *drains, *judged])


def stop_clock(view: Rolling) -> WriteRecord | None:
    """The deadline does not run while a group waits for a device: its entry is dated anew, so that it has its time once there is one."""
    if view.plan.ended:
        return None
    for turn in view.turns.values():
        if lacks_device(view, turn) and view.now - turn.at > view.desired.progress_deadline_seconds / 2:
            return WriteRecord(view.holder, view.record.with_turn(Turn(turn.group, view.now, turn.step)))
    return None


def change_step(view: Rolling) -> WriteRecord | None:
    """Where no device is left, old pods make room: in a group that serves nothing, or where the spec lets a group be out of service."""
    if view.is_paused:
        return None
    for turn in view.turns.values():
        old = [p for p in view.old_objects(turn.group) if p.is_live]
        in_use = any(view.serves(p) or view.may_hold_sessions(p) for p in view.live_of(turn.group))
        may = not in_use or view.desired.max_unavailable > 0
        if turn.step is Step.SURGE and old and lacks_device(view, turn) and may:
            return WriteRecord(view.holder, view.record.with_turn(Turn(turn.group, view.now, Step.DRAIN_FIRST)))
    return None


def enter(view: Rolling) -> WriteRecord | None:
    """Lets one more group into the rollout, if the budget has room."""
    plan, holder, target = view.plan, view.holder, view.effective_target
    if target is None or (target.short != plan.to and plan.reason is not PlanReason.MAKE_ROOM):
        return None
    if plan.ended or view.is_complete or view.is_paused or view.is_queued or view.is_unapproved:
        return None
    if holder.content in {r.content for r in view.refusals}:
        return None
    waiting = [g for g in view.groups if g not in view.turns and g not in view.record.done and _needs_turn(view, g)]
    places = {group: place for place, group in enumerate(plan.order)}
    for group in sorted(waiting, key=lambda g: _priority(view, g, places)):
        step = _step_for(view, group)
        if step is not None and gating.may_enter(view, group):
            return WriteRecord(holder, _begun(view).with_turn(Turn(group, view.now, step)))
    return None


def _begun(view: Rolling) -> RolloutRecord:
    """The record, with the price as it is when the first group enters: what the actual figures are held against."""
    plan, record = view.plan, view.record
    if plan.began_at is not None:
        return record
    return replace(record, plan=replace(plan, began_at=view.now), price=price_now(view))


def _needs_turn(view: Rolling, group: int) -> bool:
    return view.base(group) not in ("", view.plan.to) or bool(view.old_objects(group))


def _priority(view: Rolling, group: int, places: Mapping[int, int]) -> tuple[bool, bool, int, int]:
    return (group not in view.mixed, not view.is_group_broken(group), places.get(group, len(places)), group)


def _step_for(view: Rolling, group: int) -> Step | None:
    """How the group may enter now, None: not yet. A group with a broken worker serves less than it should already, so it need not wait."""
    if not _is_in_scope(view, group):
        return None
    in_use = any(view.serves(p) or view.may_hold_sessions(p) for p in view.live_of(group))
    if view.is_group_broken(group) and not in_use:
        return Step.DRAIN_FIRST
    num_mixed = sum(1 for g in view.mixed if g in view.group_ids and g not in view.turns and g != group)
    num_surging = num_mixed + sum(1 for t in view.turns.values() if t.step is Step.SURGE)
    if num_surging < view.desired.max_surge:
        return Step.SURGE
    if view.desired.max_surge > 0:
        return None
    draining = [t for t in view.turns.values() if t.step is Step.DRAIN_FIRST]
    return Step.DRAIN_FIRST if len(draining) < max(1, view.desired.max_unavailable) else None


def _is_in_scope(view: Rolling, group: int) -> bool:
    """The partition leaves room. Only updates heed it, and a group that is on neither end is always in scope."""
    plan = view.plan
    if plan.reason is not PlanReason.UPDATE or view.base(group) not in ("", view.stable):
        return True
    return view.num_begun < len(view.groups) - view.desired.partition
