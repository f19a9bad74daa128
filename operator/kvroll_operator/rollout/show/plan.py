"""status.plan: the price of the plan in force beside what it came to. It is taken once, when the first group enters, and until then shown
as it is now."""

from kvroll_core.price import Blocker
from kvroll_operator.api.plan import PlanActual, PlanStatus, blockers_of, plan_of
from kvroll_operator.api.status import RolloutSessions
from kvroll_operator.rollout.facts.price import price_now
from kvroll_operator.rollout.facts.view import View


def plan_status(view: View, sessions: RolloutSessions) -> PlanStatus:
    """The plan's price beside what it came to; `sessions` is the tally of its drains."""
    plan = view.plan
    begun = plan.began_at is not None
    found = view.record.price if begun or view.is_complete else price_now(view)
    actual = _actual(view, sessions)
    holds = {} if view.is_complete else _holds(view)
    return (
        plan_of(found, plan.id, holds, actual)
        if found
        else PlanStatus(id=plan.id, blockers=blockers_of(holds), actual=actual)
    )


def _holds(view: View) -> dict[Blocker, str]:
    refused = "; ".join(f"{r.what}: {r.reason}: {r.message}" for r in view.refusals if r.content)
    seen = (
        (view.is_unapproved, Blocker.AWAITING_APPROVAL, ""),
        (view.is_paused, Blocker.PAUSED, ""),
        (any(view.is_unschedulable(p) for p in view.live), Blocker.NO_SURGE_DEVICE, ""),
        (bool(refused), Blocker.CREATE_REFUSED, refused),
    )
    return {word: message for holds, word, message in seen if holds}


def _actual(view: View, sessions: RolloutSessions) -> PlanActual | None:
    plan = view.plan
    if plan.began_at is None:
        return None
    return PlanActual(
        held=sessions.held,
        bytes_moved=sessions.wire_bytes,
        tokens_replayed=sessions.tokens_replayed,
        # Not while it goes on: a number that changes by itself would have the status written for ever.
        seconds=None if plan.finished_at is None else round(plan.finished_at - plan.began_at),
    )
