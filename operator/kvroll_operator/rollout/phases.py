"""The phase of a group and of the rollout, as words for people. Rendered from what is seen; nothing decides by them."""

from enum import StrEnum

from kvroll_core.plan import Step
from kvroll_operator.rollout.gating import is_final_owed, owed_by
from kvroll_operator.rollout.plan import is_awaiting_approval, is_queued
from kvroll_operator.rollout.view import View


class GroupPhase(StrEnum):
    """What a group is doing."""

    STABLE = "Stable"
    SURGING = "Surging"
    WARMING = "Warming"
    GATING = "Gating"
    ADMITTING = "Admitting"
    DRAINING = "Draining"
    SEALED = "Sealed"
    RETIRING = "Retiring"
    REVERTING = "Reverting"
    REFILLING = "Refilling"
    LEAVING = "Leaving"
    UPDATED = "Updated"


class RolloutPhase(StrEnum):
    """What the plan in force is doing."""

    NONE = ""
    ROLLING = "Rolling"
    AWAITING_APPROVAL = "AwaitingApproval"
    PAUSED = "Paused"
    QUEUED = "Queued"
    PARTITION_REACHED = "PartitionReached"
    FAILED = "Failed"
    ROLLED_BACK = "RolledBack"
    COMPLETE = "Complete"


EDGES: tuple[tuple[GroupPhase, str, GroupPhase], ...] = (
    (GroupPhase.STABLE, "may enter: budget, partition and pause allow it", GroupPhase.SURGING),
    (GroupPhase.STABLE, "enters with maxSurge 0, or serves nothing and is broken", GroupPhase.DRAINING),
    (GroupPhase.SURGING, "all new workers bound to a node", GroupPhase.WARMING),
    (GroupPhase.SURGING, "no device for 120 s and no old worker serves", GroupPhase.DRAINING),
    (GroupPhase.WARMING, "all new workers Ready and reporting", GroupPhase.ADMITTING),
    (GroupPhase.WARMING, "all new workers Ready and reporting, and the gate has not judged them", GroupPhase.GATING),
    (GroupPhase.GATING, "the gate's Pass is stored", GroupPhase.ADMITTING),
    (
        GroupPhase.ADMITTING,
        "settled, and the gate (source Prometheus, or edited) has not judged them",
        GroupPhase.GATING,
    ),
    (GroupPhase.GATING, "settled, and the gate's Pass is stored", GroupPhase.DRAINING),
    (GroupPhase.GATING, "Fail or Inconclusive is stored: the plan ends", GroupPhase.REVERTING),
    (GroupPhase.ADMITTING, "all new workers admitted and settled", GroupPhase.DRAINING),
    (GroupPhase.DRAINING, "the old worker sealed itself at zero sessions", GroupPhase.SEALED),
    (GroupPhase.SEALED, "the receipt is stored; the old Pod is deleted", GroupPhase.RETIRING),
    (GroupPhase.RETIRING, "no old Pod object is left and the new workers serve", GroupPhase.UPDATED),
    (GroupPhase.RETIRING, "drained first: the new workers are made now", GroupPhase.SURGING),
    (GroupPhase.SURGING, "failure, revert or another spec before an old worker was closed", GroupPhase.REVERTING),
    (
        GroupPhase.DRAINING,
        "failure or revert: the drain is cancelled, the old worker opened again",
        GroupPhase.REVERTING,
    ),
    (GroupPhase.REVERTING, "the other Pod left through close, drain, seal, delete", GroupPhase.STABLE),
    (GroupPhase.STABLE, "a worker is missing or does not serve", GroupPhase.REFILLING),
    (GroupPhase.UPDATED, "a worker is missing or does not serve", GroupPhase.REFILLING),
    (GroupPhase.REFILLING, "all workers serve", GroupPhase.STABLE),
    (GroupPhase.STABLE, "scaled away", GroupPhase.LEAVING),
    (GroupPhase.UPDATED, "the rollout is complete", GroupPhase.STABLE),
)
"""The edges of a group, for the docs (docs/rollout.md is checked against this table)."""


def group_phase(view: View, group: int) -> GroupPhase:
    """The phase of a group."""
    if group not in view.groups:
        return GroupPhase.LEAVING
    if group in view.turns:
        return _turn_phase(view, group)
    wanted = view.want(group)
    if any(p.revision != wanted for p in view.live_of(group)):
        return GroupPhase.REVERTING
    if any((k := view.keeper(slot, wanted)) is None or not view.serves(k) for slot in view.slots(group)):
        return GroupPhase.REFILLING
    done = view.plan is not None and group in view.record.done and not view.is_complete
    return GroupPhase.UPDATED if done else GroupPhase.STABLE


def _turn_phase(view: View, group: int) -> GroupPhase:
    to = view.plan.to if view.plan else ""
    old = view.old_objects(group)
    if view.is_group_settled(group, to) and old and owed_by(view, group) and not view.is_committed(view.turns[group]):
        return GroupPhase.GATING
    if view.is_group_settled(group, to) or (view.turns[group].step is Step.DRAIN_FIRST and old):
        live = [p for p in old if p.is_live]
        if not live:
            return GroupPhase.RETIRING
        return GroupPhase.SEALED if all(view.is_sealed(p) for p in live) else GroupPhase.DRAINING
    keepers = [view.keeper(slot, to) for slot in view.slots(group)]
    if any(k is None or not k.scheduled for k in keepers):
        return GroupPhase.SURGING
    if any(k is None or k.ready_since is None or k.report is None for k in keepers):
        return GroupPhase.WARMING
    return GroupPhase.GATING if owed_by(view, group) else GroupPhase.ADMITTING


def rollout_phase(view: View) -> RolloutPhase:
    """The phase of the plan in force."""
    plan = view.plan
    if plan is None:
        return RolloutPhase.NONE
    if plan.ended:
        return RolloutPhase.FAILED
    if view.is_complete:
        return RolloutPhase.ROLLED_BACK if view.is_rolled_back else RolloutPhase.COMPLETE
    if is_queued(view):
        return RolloutPhase.QUEUED
    if is_awaiting_approval(view):
        return RolloutPhase.AWAITING_APPROVAL
    if view.is_paused:
        return RolloutPhase.PAUSED
    if (
        view.desired.partition
        and not view.turns
        and len(view.record.done & set(view.groups)) >= len(view.groups) - view.desired.partition
    ):
        return RolloutPhase.PARTITION_REACHED
    return RolloutPhase.ROLLING


_HELD = frozenset(
    {
        RolloutPhase.FAILED,
        RolloutPhase.AWAITING_APPROVAL,
        RolloutPhase.PAUSED,
        RolloutPhase.PARTITION_REACHED,
        RolloutPhase.QUEUED,
    }
)


def blocked(view: View) -> str:
    """What the rollout waits for, in one word; empty if nothing holds it."""
    if view.is_stopped:
        return "ObjectUnreadable"
    if view.desired.problem:
        return "SpecNotAccepted"
    if any(r.content for r in view.refusals):
        return "CreateRefused"
    if any(view.is_cancelled(p) for p in view.live):
        return "DrainCancelled"
    if any(view.is_unschedulable(p) for p in view.live):
        return "NoSurgeDevice" if view.turns else "NoDevice"
    phase = rollout_phase(view)
    if phase in _HELD:
        return str(phase)
    if any(group_phase(view, g) is GroupPhase.GATING for g in view.turns) or (not view.turns and is_final_owed(view)):
        return "Gate"
    waits = view.turns and any(p.admitted for g in view.turns for p in view.old_objects(g))
    short = len(view.serving()) < view.desired.num_workers
    return (
        "ServingFloor"
        if waits
        and short
        and all(view.is_group_settled(g, view.record.plan.to) for g in view.turns if view.record.plan)
        else ""
    )
