"""The state machine of one pool: `transition(desired, observed) -> (status, effects)`.

There is no state to read: what was decided stands in the records on ControllerRevisions, all else is seen. A decision is one
write and ends the pass; without one, the pass does what the wanted revisions ask of each Pod, every close under one floor.
"""

from collections.abc import Callable
from typing import TypeVar

from kvroll_operator.api.status import PoolStatus
from kvroll_operator.rollout.act import effects as fx
from kvroll_operator.rollout.act.bury import bury, forget, release
from kvroll_operator.rollout.act.gate import runs
from kvroll_operator.rollout.act.keep import fill, kept, open_, restore
from kvroll_operator.rollout.act.leave import ServingFloor, leave
from kvroll_operator.rollout.decide import gate, journal, plan, turns
from kvroll_operator.rollout.decide.groups import choose_groups
from kvroll_operator.rollout.decide.writes import Write
from kvroll_operator.rollout.facts.desired import Desired
from kvroll_operator.rollout.facts.drains import shares
from kvroll_operator.rollout.facts.observed import Observed
from kvroll_operator.rollout.facts.view import Rolling, Seen, View
from kvroll_operator.rollout.show.status import render

Effect = Write | fx.Effect
V = TypeVar("V", bound=View)

FIRST_DECISIONS: tuple[Callable[[View], Write | None], ...] = (plan.resolve_target, plan.first_plan)
"""Those of a pool without a plan."""

DECISIONS: tuple[Callable[[Rolling], Write | None], ...] = (
    plan.resolve_target,
    journal.count,
    plan.heed_request,
    plan.drop_pins,
    turns.record_finished,
    gate.judge,
    turns.fail,
    plan.supersede,
    gate.store,
    turns.change_step,
    turns.stop_clock,
    turns.enter,
    plan.complete,
)
"""Those of a pool with one, in this order: what is finished counts before a newer plan may take over, and a plan that failed has failed
whatever the spec says by now."""


def transition(desired: Desired, observed: Observed) -> tuple[PoolStatus, tuple[Effect, ...]]:
    """What to show and what to do now. Deterministic; the same observation gives the same effects until it changes."""
    view = look(desired, observed)
    return render(view), effects_of(view)


def look(desired: Desired, observed: Observed) -> View:
    """The pool as it is seen now: a `Rolling` if a plan is in force."""
    seen = Seen(desired, observed)
    groups = choose_groups(seen)
    return View(seen, groups) if seen.holder is None else Rolling(seen, groups, seen.holder)


def effects_of(view: View) -> tuple[Effect, ...]:
    """What to do now."""
    return _next(view, DECISIONS) if isinstance(view, Rolling) else _next(view, FIRST_DECISIONS)


def _next(view: V, decisions: tuple[Callable[[V], Write | None], ...]) -> tuple[Effect, ...]:
    """The first decision that there is to take, or else what is to be done."""
    if view.is_stopped:
        return ()
    if not view.desired.deleting:
        for decide in decisions:
            write = decide(view)
            if write is not None:
                return (write,)
    return tuple(_act(view))


def _act(view: View) -> list[fx.Effect]:
    if view.desired.deleting and all(view.is_overdue(p) for p in view.pods):
        # Those that are left are on nodes that do not answer; Kubernetes deletes them with the node.
        return release(view) or [fx.ReleasePool()]
    stays = kept(view)
    staying = {p.uid for p in stays}
    floor, parallel = ServingFloor(view), shares(view)
    effects: list[fx.Effect] = restore(view) + fill(view)
    for pod in stays:
        effects += open_(view, pod)
    for pod in view.live:
        if pod.uid in staying or not (view.is_planned or view.desired.deleting):
            continue
        if view.is_cancelled(pod):
            effects += open_(view, pod)
        else:
            effects += leave(view, pod, floor, stays, parallel)
    return [*effects, *runs(view), *bury(view), *release(view), *forget(view)]
