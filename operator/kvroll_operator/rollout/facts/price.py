"""The price of the plan in force by what the workers say now. Nothing is decided by it."""

import json

from kvroll_core.plan import PlanReason
from kvroll_core.precision.formats import UnknownFormatError
from kvroll_core.price import PlacedWorker, Price, RollSettings, gather, price
from kvroll_core.words import WayOn
from kvroll_operator.api.wishes import devices_of, wish_of
from kvroll_operator.rollout.facts.view import View


def price_now(view: View) -> Price | None:
    """The price of the plan in force by what the workers say now; None for a pool's first plan, or where no old worker answers."""
    plan = view.plan
    if plan.reason is PlanReason.INITIAL or plan.to not in view.revisions:
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


def _settings(view: View, devices: int) -> RollSettings:
    desired, policy = view.desired, view.desired.policy
    updates = view.plan.reason is PlanReason.UPDATE
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
