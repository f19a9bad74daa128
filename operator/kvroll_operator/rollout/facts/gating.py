"""What a rollout owes to the pool's gate, and what waits for it.

Evidence counts for one plan and one gate: it stands in the plan's record under the gate's hash, so a retry or an edited gate owes it anew.
"""

from dataclasses import dataclass

from kvroll_core.gate import GateVerdict
from kvroll_core.plan import Step, Turn
from kvroll_operator.api.gate import GatePoint, GateSource
from kvroll_operator.rollout.facts.desired import GateRule
from kvroll_operator.rollout.facts.observed import Pod
from kvroll_operator.rollout.facts.view import View

CANARY = "Canary"
FINAL = "Final"
BASELINE = "Baseline"
"""No point of the spec: an old worker's answers, measured to be kept."""


def point_of(group: int) -> str:
    """The point of one group, where every group is judged."""
    return f"G{group}"


@dataclass(frozen=True)
class Owed:
    """A measurement that the rollout waits for; `group` is None where any new worker will do."""

    point: str
    group: int | None = None


def rule_in_force(view: View) -> GateRule | None:
    """The gate that the plan in force owes evidence to. Ways back, first rollouts and ways of making room are judged by none."""
    return view.desired.gate if view.is_update and not view.desired.deleting else None


def is_accepted(view: View, gate: GateRule, point: str) -> bool:
    """That point is through: a Pass is stored, or (dry run) any verdict."""
    return any(
        e.point == point and e.gate_hash == gate.hash and (gate.dry_run or e.verdict == GateVerdict.PASS)
        for e in view.record.evidence
    )


def _is_any_accepted(view: View, gate: GateRule) -> bool:
    return any(is_accepted(view, gate, e.point) for e in view.record.evidence if e.point != BASELINE)


def owed_by(view: View, group: int) -> str:
    """The point at which a group in turn must still be judged, empty for none."""
    gate = rule_in_force(view)
    if gate is None or group not in view.turns:
        return ""
    point = point_of(group) if GatePoint.EVERY_GROUP in gate.at else CANARY
    return "" if is_accepted(view, gate, point) else point


def is_final_owed(view: View) -> bool:
    """The plan may not complete: the last judgement is owed, or nothing was judged by the gate as it is now."""
    gate = rule_in_force(view)
    if gate is None or view.plan.began_at is None:
        return False
    if GatePoint.FINAL in gate.at and not is_accepted(view, gate, FINAL):
        return True
    return not _is_any_accepted(view, gate)


def owed(view: View) -> list[Owed]:
    """All that is owed now, in the order in which it is measured."""
    gate = rule_in_force(view)
    if gate is None:
        return []
    found = [Owed(BASELINE)] if any(is_baseline_owed(view, turn) for turn in view.turns.values()) else []
    found += [Owed(point, group) for group in sorted(view.turns) if (point := owed_by(view, group))]
    if not view.turns and is_final_owed(view):
        if set(view.groups) <= view.record.done:
            found.append(Owed(FINAL))
        elif not _is_any_accepted(view, gate) and _done_workers(view):
            found.append(Owed(CANARY))
    return found


def is_baseline_owed(view: View, turn: Turn) -> bool:
    """Before this group's first old worker closes, an old worker's answers must be kept: none may be left to give them later."""
    gate = rule_in_force(view)
    if gate is None or gate.source is not GateSource.BUILTIN or view.is_committed(turn):
        return False
    if turn.step is not Step.DRAIN_FIRST and GatePoint.FINAL not in gate.at:
        return False
    tried = any(e.point == BASELINE and e.gate_hash == gate.hash for e in view.record.evidence)
    return gate.hash not in view.record.baseline and not tried and can_be_baseline(view)


def can_be_baseline(view: View) -> bool:
    """An old worker answers now or may be expected to."""
    to = view.plan.to
    if any(view.want(g) not in ("", to) and not view.is_group_broken(g) for g in view.groups):
        return True
    return any(p.revision != to and not view.is_sealed(p) and not view.is_broken(p) for p in view.live)


def may_enter(view: View, group: int) -> bool:
    """One more group may enter: those in turn are judged, and so is what the plan has changed already."""
    gate = rule_in_force(view)
    if gate is None:
        return True
    if any(owed_by(view, g) for g in view.turns):
        return _is_rescue(view, group)
    return _is_any_accepted(view, gate) or bool(view.turns) or not _done_workers(view)


def _is_rescue(view: View, group: int) -> bool:
    """A group that serves nothing enters beside one that cannot get on: the floor or the devices may wait for it."""
    to = view.plan.to
    in_use = any(view.serves(p) or view.may_hold_sessions(p) for p in view.live_of(group))
    has_begun = any(p.scheduled for g in view.turns for p in view.live_of(g) if p.revision == to)
    return view.is_group_broken(group) and not in_use and not has_begun


def _done_workers(view: View) -> list[Pod]:
    """New workers, not broken, of groups that this plan has brought through."""
    plan = view.plan
    if plan.began_at is None:
        return []
    slots = [slot for g in view.groups if g in view.record.done for slot in view.slots(g)]
    keepers = [view.keeper(slot, plan.to) for slot in slots]
    return [k for k in keepers if k is not None and not view.is_broken(k)]


def is_opening_held(view: View, pod: Pod) -> bool:
    """A new worker of a group in turn takes no traffic before its evidence is stored, whatever its label was."""
    gate = rule_in_force(view)
    if gate is None or gate.source is GateSource.PROMETHEUS or pod.revision != view.plan.to:
        return False
    return bool(owed_by(view, pod.group))


def is_closing_held(view: View, pod: Pod) -> bool:
    """The first old worker of a group in turn stays open until the group is judged, or (drained first) the baseline is kept."""
    turn = view.turns.get(pod.group)
    if turn is None or pod.revision == view.plan.to or view.is_committed(turn):
        return False
    return is_baseline_owed(view, turn) or (turn.step is Step.SURGE and bool(owed_by(view, pod.group)))


def candidate(view: View, want: Owed) -> Pod | None:
    """The new worker to measure. In a group that surges all must be there first; by Prometheus they are judged once they serve."""
    plan, gate = view.plan, view.desired.gate
    if gate is None:
        return None
    if want.group is None:
        serving = [p for p in view.serving() if p.revision == plan.to and p.group in view.group_ids]
        asked = view.gate_run.candidate if view.gate_run is not None else ""
        return min(serving, key=lambda p: (p.report is None or p.report.instance_id != asked, p.name), default=None)
    keepers = [view.keeper(slot, plan.to) for slot in view.slots(want.group)]
    able = [k for k in keepers if k is not None and can_answer(k)]
    if gate.source is GateSource.PROMETHEUS and not view.is_group_settled(want.group, plan.to):
        return None
    if view.turns[want.group].step is Step.SURGE and len(able) < len(keepers):
        return None
    return able[0] if able else None


def baseline(view: View) -> Pod | None:
    """The old worker to measure against: the one already asked while it answers, then those of the last good revision."""
    plan, run = view.plan, view.gate_run
    able = [p for p in view.live if p.revision != plan.to and can_answer(p) and not view.is_sealed(p)]
    asked = run.baseline if run is not None else ""
    return min(
        able,
        key=lambda p: (
            p.report is None or p.report.instance_id != asked,
            p.revision != view.stable,
            p.is_closed,
            p.name,
        ),
        default=None,
    )


def can_answer(pod: Pod) -> bool:
    """Its worker answered in this pass and is loaded."""
    return pod.ready_since is not None and pod.report is not None and pod.report.ready and not pod.report.sealed
