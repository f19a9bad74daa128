"""Two of the three acts: fill a slot that has no keeper, and open keepers."""

import itertools

from kvroll_core.plan import Step
from kvroll_operator.api.names import pod_name
from kvroll_operator.rollout.act.effects import (
    CancelDrain,
    CreatePod,
    Effect,
    LabelAdmitted,
    RestoreLabels,
    SetAdmission,
)
from kvroll_operator.rollout.facts import gating
from kvroll_operator.rollout.facts.observed import Pod
from kvroll_operator.rollout.facts.view import View

RETRY_DEAD_SECONDS = 30
"""A slot whose Pod ended this soon after its creation is not filled again before then: the dead Pod object is the back-off's memory."""


def kept(view: View) -> list[Pod]:
    """Pods that stay: every slot's keeper, and beside it the base worker of a group whose new workers do not all serve yet."""
    stays: list[Pod] = []
    for group in view.groups:
        for slot in view.slots(group):
            revisions = [view.want(group)] + ([view.base(group)] if _retains_base(view, group) else [])
            stays += [
                k
                for revision in dict.fromkeys(revisions)
                if (k := view.keeper(slot, revision)) is not None and not _goes_on(view, k, group)
            ]
    return stays


def _goes_on(view: View, keeper: Pod, group: int) -> bool:
    """A base worker that was closed in its group's turn leaves, whatever its successor does meanwhile: no flip-flop."""
    return keeper.revision != view.want(group) and keeper.is_closed


def _retains_base(view: View, group: int) -> bool:
    turn, plan = view.turns.get(group), view.plan
    if turn is None or turn.step is not Step.SURGE or view.base(group) in ("", plan.to):
        return False
    if not view.is_group_settled(group, plan.to) or gating.owed_by(view, group):
        return True
    return view.is_paused and not view.is_committed(turn)


def fill(view: View) -> list[Effect]:
    """Creates what slots lack."""
    effects: list[Effect] = []
    for group in view.groups:
        for slot in view.slots(group):
            effects += [_create(view, slot, revision) for revision in _lacking(view, slot)]
    return effects


def _lacking(view: View, slot: tuple[int, int]) -> list[str]:
    group = slot[0]
    wanted = view.want(group)
    lacking = []
    if wanted in view.revisions and view.keeper(slot, wanted) is None and _may_create(view, slot, wanted):
        lacking.append(wanted)
    base = view.base(group)
    if _refills_base(view, group) and view.keeper(slot, base) is None and not _backs_off(view, slot, base):
        lacking.append(base)
    return lacking


def _may_create(view: View, slot: tuple[int, int], revision: str) -> bool:
    turn, plan = view.turns.get(slot[0]), view.plan
    if _backs_off(view, slot, revision):
        return False
    if turn is None:
        return True
    if turn.step is Step.DRAIN_FIRST:
        return not any(p.index == slot[1] for p in view.old_objects(slot[0]))
    return not (view.is_paused and not view.is_committed(turn) and view.base(slot[0]) not in ("", plan.to))


def _refills_base(view: View, group: int) -> bool:
    """In an uncommitted surge a lost base worker is made again until the new ones serve, unless it would take their device."""
    turn, plan = view.turns.get(group), view.plan
    if turn is None or not _retains_base(view, group) or view.is_committed(turn):
        return False
    waits = any(not p.scheduled for p in view.live_of(group) if p.revision == plan.to)
    return not (waits and view.is_group_broken(group))


def _backs_off(view: View, slot: tuple[int, int], revision: str) -> bool:
    return any(
        p.slot == slot and p.revision == revision and p.is_dead and view.now - p.created < RETRY_DEAD_SECONDS
        for p in view.pods_of(slot[0])
    )


def _create(view: View, slot: tuple[int, int], revision: str) -> CreatePod:
    used = {p.incarnation for p in view.pods_of(slot[0]) if p.slot == slot and p.revision == revision}
    names = (pod_name(view.desired.pool, revision, *slot, n) for n in itertools.count())
    incarnation = next(n for n, name in enumerate(names) if n not in used and name not in view.taken)
    return CreatePod(view.revisions[revision], *slot, incarnation)


def restore(view: View) -> list[Effect]:
    """Labels that somebody changed, and protection that somebody took from a worker that may hold sessions."""
    return [RestoreLabels(p) for p in view.live if p.is_mislabelled or (not p.protected and not view.is_sealed(p))]


def open_(view: View, pod: Pod) -> list[Effect]:
    """The next step towards taking new sessions; a drain that is no longer wanted is cancelled first."""
    report = pod.report
    if pod.is_mislabelled or not pod.protected:
        return []  # that is written first, and one write at a time goes to a Pod
    if pod.ready_since is None or report is None or not report.ready or view.is_sealed(pod):
        return []
    if gating.is_opening_held(view, pod):
        return []
    drain = view.drain_of(pod)
    if drain is not None:
        counted = report.tally if report.drain_id == drain.uid else drain.tally
        return [CancelDrain(pod, report.instance_id, report.address, drain, counted)]
    if pod.admitted is not True:
        return [LabelAdmitted(pod, True)]
    if not report.admitting:
        return [SetAdmission(pod, report.instance_id, report.address, True)]
    return []
