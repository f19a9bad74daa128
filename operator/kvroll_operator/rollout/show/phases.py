"""The phase of a group and of the rollout, as words for people. Rendered from what is seen; nothing decides by them."""

from enum import StrEnum

from kvroll_core.plan import Step
from kvroll_operator.rollout.facts.gating import is_final_owed, owed_by
from kvroll_operator.rollout.facts.view import View


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


_P = GroupPhase
TURN = (_P.SURGING, _P.WARMING, _P.GATING, _P.ADMITTING, _P.DRAINING, _P.SEALED, _P.RETIRING)
"""A group's way through its turn, in order. What happens between two looks is not seen, so it may seem to leap ahead."""
_AT_REST = (_P.STABLE, _P.UPDATED, _P.REFILLING, _P.REVERTING)
_NEW = (_P.SURGING, _P.WARMING, _P.GATING, _P.ADMITTING)

EDGES: tuple[tuple[tuple[GroupPhase, ...], str, tuple[GroupPhase, ...]], ...] = (
    (
        (_P.STABLE, _P.UPDATED, _P.REFILLING),
        "its turn: budget, partition, approval and pause allow it; drained first, or the old Pods are gone",
        (_P.SURGING, _P.DRAINING, _P.RETIRING),
    ),
    (
        (_P.REVERTING, _P.REFILLING),
        "its turn, and workers are there already that it is about; the first phase that those are in",
        TURN,
    ),
    ((_P.SURGING,), "all new workers bound to a node", (_P.WARMING,)),
    ((_P.WARMING,), "all new workers Ready and reporting, and the gate has not judged them", (_P.GATING,)),
    ((_P.WARMING,), "all new workers Ready and reporting", (_P.ADMITTING,)),
    ((_P.GATING,), "the gate's Pass is stored", (_P.ADMITTING,)),
    (
        (_P.ADMITTING, _P.DRAINING),
        "the gate (source Prometheus, or edited) has not judged those that serve",
        (_P.GATING,),
    ),
    ((_P.ADMITTING, _P.GATING), "all new workers admitted and settled, and judged", (_P.DRAINING,)),
    (_NEW, "drained first: maxSurge 0, no device for 120 s, or nothing of the group serves", (_P.DRAINING,)),
    ((_P.DRAINING,), "the old workers sealed themselves at zero sessions", (_P.SEALED,)),
    ((_P.SEALED,), "the receipt is stored; the old Pod is deleted", (_P.RETIRING,)),
    ((_P.DRAINING, _P.SEALED, _P.RETIRING), "drained first: the new workers are made now; or one of them died", _NEW),
    ((_P.WARMING, _P.GATING, _P.ADMITTING), "a new worker died, or is not Ready any more", (_P.SURGING, _P.WARMING)),
    (
        (_P.SEALED, _P.RETIRING),
        "an old worker's container started anew, or it was made again",
        (_P.DRAINING, _P.SEALED),
    ),
    (
        (_P.ADMITTING, _P.DRAINING, _P.SEALED, _P.RETIRING),
        "no old Pod object is left and all have settled",
        (_P.UPDATED,),
    ),
    (TURN, "another plan took over, and the group is what that leads to", (_P.UPDATED,)),
    (TURN, "the same, and it was the last group; or it goes back, and nothing had changed", (_P.STABLE,)),
    (TURN, "the plan ended, or another took over: the other Pods leave by close, drain, seal, delete", (_P.REVERTING,)),
    (TURN, "the same, and a worker is missing", (_P.REFILLING,)),
    ((_P.REVERTING,), "the other Pods have left", (_P.STABLE, _P.UPDATED, _P.REFILLING)),
    ((_P.STABLE, _P.UPDATED), "a worker is missing or does not serve", (_P.REFILLING,)),
    (
        (_P.STABLE, _P.UPDATED, _P.REFILLING),
        "it shall be of another revision, without a turn: back, or as a group beside it",
        (_P.REVERTING,),
    ),
    ((_P.REFILLING,), "all workers serve", (_P.STABLE, _P.UPDATED)),
    ((_P.UPDATED,), "the rollout is complete", (_P.STABLE,)),
    ((_P.STABLE,), "it is what the plan leads to already", (_P.UPDATED,)),
    ((*_AT_REST, *TURN), "scaled away", (_P.LEAVING,)),
    ((_P.LEAVING,), "the pool is scaled up again", _AT_REST),
    ((_P.LEAVING,), "the same, before the end of its turn was recorded", TURN),
)
"""The edges of a group: from any of the first phases, when, to any of the last. docs/rollout.md shows this table, and the simulated cluster
requires one of its edges, or a leap ahead within a turn, at every pass."""
_PAIRS = frozenset((before, after) for early, _, late in EDGES for before in early for after in late)


def is_edge(before: GroupPhase, after: GroupPhase) -> bool:
    """The table has that step, or it is one ahead within a turn."""
    leaps = before in TURN and after in TURN and TURN.index(before) < TURN.index(after)
    return leaps or (before, after) in _PAIRS


def group_phases(view: View) -> dict[int, GroupPhase]:
    """The phase of each group that the pool shall have, or of which a Pod is left, ascending."""
    return {group: group_phase(view, group) for group in sorted({*view.groups, *(p.group for p in view.pods)})}


def group_phase(view: View, group: int) -> GroupPhase:
    """The phase of a group."""
    if group not in view.group_ids:
        return GroupPhase.LEAVING
    if group in view.turns:
        return _turn_phase(view, group)
    wanted = view.want(group)
    if any(p.revision != wanted for p in view.live_of(group)):
        return GroupPhase.REVERTING
    if any((k := view.keeper(slot, wanted)) is None or not view.serves(k) for slot in view.slots(group)):
        return GroupPhase.REFILLING
    done = group in view.record.done and not view.is_complete
    return GroupPhase.UPDATED if done else GroupPhase.STABLE


def _turn_phase(view: View, group: int) -> GroupPhase:
    to = view.plan.to
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
    if not view.is_planned:
        return RolloutPhase.NONE
    if plan.ended:
        return RolloutPhase.FAILED
    if view.is_complete:
        return RolloutPhase.ROLLED_BACK if view.is_rolled_back else RolloutPhase.COMPLETE
    if view.is_queued:
        return RolloutPhase.QUEUED
    if view.is_unapproved:
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
    return "ServingFloor" if waits and short and all(view.is_group_settled(g, view.plan.to) for g in view.turns) else ""
