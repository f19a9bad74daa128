"""The state machine of one pool: `transition(desired, observed) -> (status, effects)`.

There is no state to read: what was decided stands in the records on ControllerRevisions, all else is seen. A decision is one
write and ends the pass; without one, the pass does what the wanted revisions ask of each Pod, every close under one floor.
"""

from collections.abc import Callable

from kvroll_operator.api.status import PoolStatus
from kvroll_operator.rollout.act.bury import forget
from kvroll_operator.rollout.act.effects import Effect, ReleasePool
from kvroll_operator.rollout.act.guard import ServingFloor
from kvroll_operator.rollout.act.keep import fill, kept, open_, restore
from kvroll_operator.rollout.act.leave import bury, leave, shares
from kvroll_operator.rollout.decide import gate as gate_steps
from kvroll_operator.rollout.decide import plan, turns
from kvroll_operator.rollout.facts import journal
from kvroll_operator.rollout.facts.desired import Desired
from kvroll_operator.rollout.facts.observed import Observed
from kvroll_operator.rollout.facts.view import View
from kvroll_operator.rollout.show.status import render

DECISIONS: tuple[Callable[[View], Effect | None], ...] = (
    plan.resolve_target,
    plan.first_plan,
    journal.count,
    plan.heed_request,
    plan.drop_pins,
    turns.record_finished,
    gate_steps.judge,
    turns.fail,
    plan.supersede,
    gate_steps.store,
    turns.change_step,
    turns.stop_clock,
    turns.enter,
    plan.complete,
)
"""In this order: what is finished counts before a newer plan may take over, and a plan that failed has failed whatever the spec says
by now."""


def transition(desired: Desired, observed: Observed) -> tuple[PoolStatus, tuple[Effect, ...]]:
    """What to show and what to do now. Deterministic; the same observation gives the same effects until it changes."""
    view = View(desired, observed)
    status = render(view)
    if view.is_stopped:
        return status, ()
    if not desired.deleting:
        for decide in DECISIONS:
            effect = decide(view)
            if effect is not None:
                return status, (effect,)
    return status, tuple(_physical(view))


def _physical(view: View) -> list[Effect]:
    if view.desired.deleting and all(view.is_overdue(p) for p in view.pods):
        # Those that are left are on nodes that do not answer; Kubernetes deletes them with the node.
        return journal.release(view) or [ReleasePool()]
    stays = kept(view)
    staying = {p.uid for p in stays}
    floor = ServingFloor(view)
    effects: list[Effect] = restore(view) + (fill(view) if view.plan is not None else [])
    for pod in stays:
        effects += open_(view, pod)
    parallel = shares(view)
    for pod in view.live:
        if pod.uid in staying or (view.plan is None and not view.desired.deleting):
            continue
        if view.is_cancelled(pod):
            effects += open_(view, pod)
        else:
            effects += leave(view, pod, floor, stays, parallel)
    return [*effects, *gate_steps.runs(view), *bury(view), *journal.release(view), *forget(view)]
