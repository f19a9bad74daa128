"""Renders the status of a pool from one observation. The only place where a status is made; nothing reads one to decide."""

import json

from kvroll_operator.api.parts import instant
from kvroll_operator.api.plan import PlanStatus
from kvroll_operator.api.status import (
    GroupStatus,
    PoolStatus,
    PrecisionShare,
    RolloutSessions,
    RolloutStatus,
    SessionsNow,
)
from kvroll_operator.api.wall import wall_status
from kvroll_operator.rollout.facts.drains import lost, of_rollout
from kvroll_operator.rollout.facts.view import View
from kvroll_operator.rollout.show.conditions import conditions
from kvroll_operator.rollout.show.gate import gate_status
from kvroll_operator.rollout.show.phases import blocked, group_phase, group_phases, rollout_phase
from kvroll_operator.rollout.show.plan import plan_status


def render(view: View) -> PoolStatus:
    """The whole status but for the transition times of conditions, which the writer knows."""
    serving = view.serving()
    target = view.target.short if view.target else ""
    updated = sum(1 for p in serving if p.revision == target)
    wanted = view.desired.num_workers
    staying = [p for p in view.live if not p.is_closed and p.group in view.group_ids]
    return PoolStatus(
        observed_generation=view.desired.generation,
        replicas=len(staying),
        ready_replicas=sum(1 for p in view.live if p.ready_since is not None),
        admitted_replicas=len(serving),
        updated_replicas=updated,
        ready=f"{len(serving)}/{wanted}",
        updated=f"{updated}/{wanted}",
        selector=f"kvroll.dev/pool={view.desired.pool},kvroll.dev/admitted=true",
        current_revision=view.stable,
        update_revision=target,
        precision_mix=_mix(view),
        groups=_groups(view),
        rollout=_rollout(view) if view.is_planned else RolloutStatus(),
        plan=plan_status(view, _sessions(view)) if view.is_planned else PlanStatus(),
        wall=wall_status(view.wall),
        sessions=SessionsNow(active=sum(p.report.sessions for p in view.pods if p.report), lost=lost(view)),
        gate=gate_status(view),
        failed_revisions=sorted(r.short for r in view.revisions.values() if r.record.pin),
        blocked=blocked(view),
        conditions=conditions(view),
    )


def _mix(view: View) -> list[PrecisionShare]:
    counts: dict[str, int] = {}
    kv_bytes: dict[str, float] = {}
    for pod in view.serving():
        counts[pod.revision] = counts.get(pod.revision, 0) + 1
        if pod.report is not None:
            kv_bytes[pod.revision] = pod.report.kv_bytes_per_token
    shares = []
    for short, workers in sorted(counts.items()):
        revision = view.revisions.get(short)
        precision = json.loads(revision.content).get("precision", {}) if revision else {}
        shares.append(
            PrecisionShare(
                revision=short,
                weights=precision.get("weights", ""),
                kv_cache=precision.get("kvCache", ""),
                workers=workers,
                kv_bytes_per_token=kv_bytes.get(short, 0.0),
            )
        )
    return shares


def _groups(view: View) -> list[GroupStatus]:
    rows = []
    for group, phase in group_phases(view).items():
        live = view.live_of(group)
        best = max(live, key=lambda p: (view.serves(p), -p.created, p.name), default=None)
        target = view.want(group) if group in view.group_ids else ""
        revision = best.revision if best else ""
        rows.append(
            GroupStatus(id=group, phase=phase, revision=revision, target_revision=target, sessions=view.sessions(group))
        )
    return rows


def _rollout(view: View) -> RolloutStatus:
    plan = view.plan
    total = len(view.groups)
    through = total if view.is_complete else len(view.record.done & set(view.groups))
    return RolloutStatus(
        id=plan.id,
        from_=plan.from_revision,
        to=plan.to,
        reason=plan.reason,
        phase=rollout_phase(view),
        message=_message(view),
        started_at=instant(plan.started_at),
        began_at=instant(plan.began_at),
        finished_at=instant(plan.finished_at),
        groups_updated=through,
        groups_total=total,
        group=f"{through}/{total}",
        queued_revision=view.target.short if view.is_queued and view.target else "",
        sessions=_sessions(view),
    )


def _message(view: View) -> str:
    plan = view.plan
    if view.is_complete:
        return ""
    if plan.ended:
        pin = view.record.pin
        return f"{plan.ended}; then {pin.then}" if pin else plan.ended
    parts = [f"group {g} {group_phase(view, g)}" for g in sorted(view.turns)]
    return ", ".join(parts)


def _sessions(view: View) -> RolloutSessions:
    total = of_rollout(view)
    remaining = sum(d.remaining for d in view.drains_of_plan if d.phase == "Draining" and not d.receipt)
    return RolloutSessions(**vars(total), remaining=remaining, moved=total.exact + total.converted + total.replayed)
