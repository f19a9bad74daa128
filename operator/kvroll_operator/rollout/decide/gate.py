"""The gate's decisions and effects: judge stored evidence, store what a run found, start and stop runs."""

import hashlib
import json
from dataclasses import replace

from kvroll_core.gate import GateVerdict
from kvroll_core.plan import OnFailure, StoredEvidence
from kvroll_operator.api.gate import GateSource
from kvroll_operator.rollout.act.effects import Effect, Probe, StartGate, StopGate, WriteRecord
from kvroll_operator.rollout.decide.plan import end_plan
from kvroll_operator.rollout.decide.turns import then_on_failure
from kvroll_operator.rollout.facts import gating
from kvroll_operator.rollout.facts.desired import GateRule
from kvroll_operator.rollout.facts.gate_words import BASELINE
from kvroll_operator.rollout.facts.observed import GateRun, Pod
from kvroll_operator.rollout.facts.view import View

_ENDS = {GateVerdict.FAIL: "GateFailed", GateVerdict.INCONCLUSIVE: "GateInconclusive"}


def judge(view: View) -> WriteRecord | None:
    """Ends the plan on stored evidence under the present gate. Without a verdict the pool holds, for a person to look (trap 3)."""
    gate = gating.rule_in_force(view)
    if gate is None or gate.dry_run:
        return None
    for verdict, reason in _ENDS.items():
        if any(e.gate_hash == gate.hash and e.verdict == verdict for e in view.record.evidence):
            then = then_on_failure(view) if verdict is GateVerdict.FAIL else OnFailure.PAUSE
            return end_plan(view, reason, then)
    return None


def store(view: View) -> WriteRecord | None:
    """Stores what a run found, before anything is done about it; a result that nobody is owed any more is dropped."""
    gate, holder, plan, run = gating.rule_in_force(view), view.holder, view.plan, view.gate_run
    if gate is None or holder is None or plan is None:
        return None
    points = [want.point for want in gating.owed(view)]
    is_owed = run is not None and (run.plan, run.gate_hash) == (plan.id, gate.hash) and run.point in points
    if run is not None and is_owed and run.is_over and _is_about_the_living(view, run):
        if run.point == BASELINE and run.verdict == GateVerdict.PASS:
            return WriteRecord(holder, replace(view.record, baseline=view.record.baseline | {gate.hash}))
        found = StoredEvidence(run.point, gate.hash, run.verdict, run.digest, view.now, run.report)
        return WriteRecord(holder, view.record.with_evidence(found))
    return _store_unmeasurable(view, gate)


def _is_about_the_living(view: View, run: GateRun) -> bool:
    """A run that got no verdict because a worker died under it says nothing of the revision: it is made again with the next instance."""
    if run.verdict in (GateVerdict.PASS, GateVerdict.FAIL):
        return True
    there = {p.report.instance_id for p in view.live if p.report is not None}
    return {run.baseline, run.candidate} - {""} <= there


def _store_unmeasurable(view: View, gate: GateRule) -> WriteRecord | None:
    """Without an old worker, now or to come, there is nothing to measure against: said at once instead of at a deadline."""
    if gate.source is not GateSource.BUILTIN or gate.hash in view.record.baseline or gating.can_be_baseline(view):
        return None
    for want in gating.owed(view):
        new = gating.candidate(view, want)
        if new is None or view.holder is None:
            continue
        reason = "no worker of another revision serves, and no baseline was kept: nothing to measure against"
        report = json.dumps({"verdict": GateVerdict.INCONCLUSIVE, "reason": reason, "samples": 0}, sort_keys=True)
        digest = hashlib.sha256(report.encode()).hexdigest()
        found = StoredEvidence(want.point, gate.hash, GateVerdict.INCONCLUSIVE, digest, view.now, report)
        return WriteRecord(view.holder, view.record.with_evidence(found))
    return None


def runs(view: View) -> list[Effect]:
    """Starts the run that is owed unless it is under way already; stops one that nobody waits for."""
    gate, plan, run = gating.rule_in_force(view), view.plan, view.gate_run
    wanted = gating.owed(view)
    if gate is not None and plan is not None:
        for want in wanted:
            start = _start(view, gate, plan.id, want)
            if start is not None:
                return [start] if run is None or not is_same_run(start, run) else []
    is_wanted = (
        run is not None
        and plan is not None
        and gate is not None
        and (run.plan, run.gate_hash) == (plan.id, gate.hash)
        and run.point in [want.point for want in wanted]
    )
    return [StopGate(view.desired.pool)] if run is not None and not is_wanted else []


def is_same_run(start: StartGate, run: GateRun) -> bool:
    """That run measures just this, on the same instances."""
    asked = (run.plan, run.point, run.gate_hash, run.baseline, run.candidate)
    old = start.baseline.instance_id if start.baseline else ""
    new = start.candidate.instance_id if start.candidate else ""
    return asked == (start.plan, start.point, start.gate_hash, old, new)


def _start(view: View, gate: GateRule, plan: str, want: gating.Owed) -> StartGate | None:
    old = gating.baseline(view)
    if want.point == BASELINE:
        return StartGate(plan, BASELINE, gate.hash, _probe(old), None, False) if old is not None else None
    new = gating.candidate(view, want)
    if new is None:
        return None
    is_kept = gate.hash in view.record.baseline
    if gate.source is GateSource.BUILTIN and old is None and not is_kept:
        return None
    is_alone = is_kept or gate.source is GateSource.PROMETHEUS
    return StartGate(plan, want.point, gate.hash, None if is_alone else _probe(old), _probe(new), is_kept)


def _probe(pod: Pod | None) -> Probe | None:
    if pod is None or pod.report is None:
        return None
    return Probe(pod.name, pod.revision, pod.report.instance_id, pod.report.address)
