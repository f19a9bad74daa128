"""The gate's decisions: judge stored evidence, store what a run found."""

import hashlib
import json
from dataclasses import replace

from kvroll_core.gate import GateVerdict
from kvroll_core.plan import OnFailure, StoredEvidence
from kvroll_operator.api.gate import GateSource
from kvroll_operator.rollout.decide.plan import end_plan
from kvroll_operator.rollout.decide.turns import then_on_failure
from kvroll_operator.rollout.decide.writes import WriteRecord
from kvroll_operator.rollout.facts import gating
from kvroll_operator.rollout.facts.desired import GateRule
from kvroll_operator.rollout.facts.observed import GateRun
from kvroll_operator.rollout.facts.view import Rolling

_ENDS = {GateVerdict.FAIL: "GateFailed", GateVerdict.INCONCLUSIVE: "GateInconclusive"}


def judge(view: Rolling) -> WriteRecord | None:
    """Ends the plan on stored evidence under the present gate. Without a verdict the pool holds, for a person to look."""
    gate = gating.rule_in_force(view)
    if gate is None or gate.dry_run:
        return None
    for verdict, reason in _ENDS.items():
        if any(e.gate_hash == gate.hash and e.verdict == verdict for e in view.record.evidence):
            then = then_on_failure(view) if verdict is GateVerdict.FAIL else OnFailure.PAUSE
            return end_plan(view, reason, then)
    return None


def store(view: Rolling) -> WriteRecord | None:
    """Stores what a run found, before anything is done about it; a result that nobody is owed any more is dropped."""
    gate, run = gating.rule_in_force(view), view.gate_run
    if gate is None:
        return None
    points = [want.point for want in gating.owed(view)]
    is_owed = run is not None and (run.plan, run.gate_hash) == (view.plan.id, gate.hash) and run.point in points
    if run is not None and is_owed and run.is_over and _is_about_the_living(view, run):
        if run.point == gating.BASELINE and run.verdict == GateVerdict.PASS:
            return WriteRecord(view.holder, replace(view.record, baseline=view.record.baseline | {gate.hash}))
        found = StoredEvidence(run.point, gate.hash, run.verdict, run.digest, view.now, run.report)
        return WriteRecord(view.holder, view.record.with_evidence(found))
    return _store_unmeasurable(view, gate)


def _is_about_the_living(view: Rolling, run: GateRun) -> bool:
    """A run that got no verdict because a worker died under it says nothing of the revision: it is made again with the next instance."""
    if run.verdict in (GateVerdict.PASS, GateVerdict.FAIL):
        return True
    there = {p.report.instance_id for p in view.live if p.report is not None}
    return {run.baseline, run.candidate} - {""} <= there


def _store_unmeasurable(view: Rolling, gate: GateRule) -> WriteRecord | None:
    """Without an old worker, now or to come, there is nothing to measure against: said at once instead of at a deadline."""
    if gate.source is not GateSource.BUILTIN or gate.hash in view.record.baseline or gating.can_be_baseline(view):
        return None
    for want in gating.owed(view):
        new = gating.candidate(view, want)
        if new is None:
            continue
        reason = "no worker of another revision serves, and no baseline was kept: nothing to measure against"
        report = json.dumps({"verdict": GateVerdict.INCONCLUSIVE, "reason": reason, "samples": 0}, sort_keys=True)
        digest = hashlib.sha256(report.encode()).hexdigest()
        found = StoredEvidence(want.point, gate.hash, GateVerdict.INCONCLUSIVE, digest, view.now, report)
        return WriteRecord(view.holder, view.record.with_evidence(found))
    return None
