"""The gate's act: the run that is owed goes on, any other is ended."""

from kvroll_operator.api.gate import GateSource
from kvroll_operator.rollout.act.effects import Effect, GateProbe, StartGate, StopGate
from kvroll_operator.rollout.facts import gating
from kvroll_operator.rollout.facts.desired import GateRule
from kvroll_operator.rollout.facts.observed import GateRun, Pod
from kvroll_operator.rollout.facts.view import View


def runs(view: View) -> list[Effect]:
    """Starts the run that is owed unless it is under way already; stops one that nobody waits for."""
    gate, run = gating.rule_in_force(view), view.gate_run
    wanted = gating.owed(view)
    if gate is not None:
        for want in wanted:
            start = _start(view, gate, want)
            if start is not None:
                return [start] if run is None or not is_same_run(start, run) else []
    is_wanted = (
        run is not None
        and gate is not None
        and (run.plan, run.gate_hash) == (view.plan.id, gate.hash)
        and run.point in [want.point for want in wanted]
    )
    return [StopGate(view.desired.pool)] if run is not None and not is_wanted else []


def is_same_run(start: StartGate, run: GateRun) -> bool:
    """That run measures just this, on the same instances."""
    asked = (run.plan, run.point, run.gate_hash, run.baseline, run.candidate)
    old = start.baseline.instance_id if start.baseline else ""
    new = start.candidate.instance_id if start.candidate else ""
    return asked == (start.plan, start.point, start.gate_hash, old, new)


def _start(view: View, gate: GateRule, want: gating.Owed) -> StartGate | None:
    plan, old = view.plan.id, gating.baseline(view)
    if want.point == gating.BASELINE:
        return StartGate(plan, gating.BASELINE, gate.hash, _probe(old), None, False) if old is not None else None
    new = gating.candidate(view, want)
    if new is None:
        return None
    is_kept = gate.hash in view.record.baseline
    if gate.source is GateSource.BUILTIN and old is None and not is_kept:
        return None
    is_alone = is_kept or gate.source is GateSource.PROMETHEUS
    return StartGate(plan, want.point, gate.hash, None if is_alone else _probe(old), _probe(new), is_kept)


def _probe(pod: Pod | None) -> GateProbe | None:
    if pod is None or pod.report is None:
        return None
    return GateProbe(pod.name, pod.revision, pod.report.instance_id, pod.report.address)
