"""The price of the plan in force: taken once, when its first group enters, and shown as it is now until then. Nothing is decided by it."""

import json

from kvroll_core.plan import PlanReason
from kvroll_core.precision.formats import UnknownFormatError
from kvroll_core.price import Blocker, PlacedWorker, Price, RollSettings, gather, price
from kvroll_core.words import WayOn
from kvroll_operator.api.plan import PlanActual, PlanStatus, blockers_of, plan_of
from kvroll_operator.api.status import RolloutSessions
from kvroll_operator.api.wishes import devices_of, wish_of
from kvroll_operator.rollout.decide.plan import is_awaiting_approval
from kvroll_operator.rollout.facts.view import View


def price_now(view: View) -> Price | None:
    """The price of the plan in force by what the workers say now; None for a pool's first plan, or where no old worker answers."""
    plan = view.plan
    if plan is None or plan.reason is PlanReason.INITIAL or plan.to not in view.revisions:
        return None
    contents = {short: json.loads(r.content) for short, r in view.revisions.items()}
    wishes = {short: wish for short, content in contents.items() if (wish := wish_of(content))}
    if plan.to not in wishes:
        return None
    planned = frozenset(plan.order)
    order = [g for g in plan.order if g in view.group_ids] + [g for g in view.groups if g not in planned]
    settings = _settings(view, devices_of(contents[plan.to]))
    ask = gather(_placed(view), wishes, plan.to, order=order, settings=settings)
    try:
        return price(ask) if ask else None
    except UnknownFormatError:
        return None


def plan_status(view: View, sessions: RolloutSessions) -> PlanStatus:
    """The plan's price beside what it came to; `sessions` is the tally of its drains."""
    plan = view.plan
    if plan is None:
        return PlanStatus()
    begun = plan.began_at is not None
    found = view.record.price if begun or view.is_complete else price_now(view)
    actual = _actual(view, sessions)
    holds = {} if view.is_complete else _holds(view)
    return (
        plan_of(found, plan.id, holds, actual)
        if found
        else PlanStatus(id=plan.id, blockers=blockers_of(holds), actual=actual)
    )


def _settings(view: View, devices: int) -> RollSettings:
    desired, policy = view.desired, view.desired.policy
    updates = view.plan is not None and view.plan.reason is PlanReason.UPDATE
    return RollSettings(
        allow=tuple(WayOn(word) for word in policy.allow),
        kv_across_weights=policy.kv_across_weights,
        parallel=min(policy.parallel, policy.per_worker),
        bytes_per_second=policy.bytes_per_second,
        max_surge=desired.max_surge,
        max_unavailable=desired.max_unavailable,
        partition=desired.partition if updates else 0,
        group_size=desired.group_size,
        devices=devices,
        min_ready_seconds=desired.min_ready_seconds,
        is_gated=desired.gate is not None,
    )


def _placed(view: View) -> list[PlacedWorker]:
    found = []
    for pod in view.live:
        if pod.report is not None and pod.report.facts is not None and pod.group in view.group_ids:
            started = pod.ready_since - pod.created if pod.ready_since is not None else None
            found.append(PlacedWorker(pod.group, pod.revision, pod.report.facts, started))
    return found


def _holds(view: View) -> dict[Blocker, str]:
    refused = "; ".join(f"{r.what}: {r.reason}: {r.message}" for r in view.refusals if r.content)
    seen = (
        (is_awaiting_approval(view), Blocker.AWAITING_APPROVAL, ""),
        (view.is_paused, Blocker.PAUSED, ""),
        (any(view.is_unschedulable(p) for p in view.live), Blocker.NO_SURGE_DEVICE, ""),
        (bool(refused), Blocker.CREATE_REFUSED, refused),
    )
    return {word: message for holds, word, message in seen if holds}


def _actual(view: View, sessions: RolloutSessions) -> PlanActual | None:
    plan = view.plan
    if plan is None or plan.began_at is None:
        return None
    return PlanActual(
        held=sessions.held,
        bytes_moved=sessions.wire_bytes,
        tokens_replayed=sessions.tokens_replayed,
        # Not while it goes on: a number that changes by itself would have the status written for ever.
        seconds=None if plan.finished_at is None else round(plan.finished_at - plan.began_at),
    )
