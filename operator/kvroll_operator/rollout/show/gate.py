"""What people see of the gate: status.gate and what the condition GatePassed says. Nothing is decided by it."""

import json
import math
from typing import Any

from kvroll_core.gate import GateVerdict
from kvroll_core.plan import StoredEvidence
from kvroll_operator.api.gate_status import GateMetricStatus, GateStatus
from kvroll_operator.api.parts import instant
from kvroll_operator.rollout.facts import gating
from kvroll_operator.rollout.facts.observed import Revision
from kvroll_operator.rollout.facts.view import View

RUNNING = "Running"
UNMEASURED = "quality unmeasured: spec.gate is unset"
_CONDITIONS: dict[str, tuple[bool | None, str]] = {
    GateVerdict.PASS: (True, "Passed"),
    GateVerdict.FAIL: (False, "Failed"),
    GateVerdict.INCONCLUSIVE: (False, "Inconclusive"),
    GateVerdict.NOT_RUN: (None, "NotRun"),
    RUNNING: (None, "Running"),
}


def gate_status(view: View) -> GateStatus:
    """The run under way, else the newest evidence that counts, else NotRun with the reason."""
    run, gate = view.gate_run, view.desired.gate
    is_dry = gate is not None and gate.dry_run
    if run is not None and not run.is_over and gating.rule_in_force(view) is not None:
        since = instant(run.started_at)
        return GateStatus(verdict=RUNNING, point=run.point, samples=run.samples, since=since, dry_run=is_dry)
    holder = _holder(view)
    found = _newest(view, holder)
    if holder is not None and found is not None:
        return _of(found, holder, is_dry)
    return GateStatus(verdict=GateVerdict.NOT_RUN, reason=_why_not(view))


def gate_condition(view: View) -> tuple[bool | None, str, str]:
    """(status, reason, message) of GatePassed."""
    shown = gate_status(view)
    status, reason = _CONDITIONS.get(shown.verdict, (None, "NotRun"))
    parts = [shown.point, shown.reason]
    if shown.dry_run and shown.verdict not in (GateVerdict.NOT_RUN, RUNNING):
        parts.append("(dry run: nothing waits for it)")
    return status, reason, " ".join(part for part in parts if part)[:2048]


def _holder(view: View) -> Revision | None:
    """Whose evidence is shown: a revision that failed keeps its own while the pool goes back from it."""
    pinned = view.target is not None and view.target.record.pin is not None
    return view.target if pinned else view.holder


def _newest(view: View, holder: Revision | None) -> StoredEvidence | None:
    """A verdict of an edited gate counts no more, but a plan that is over was judged by the gate of its time."""
    if holder is None:
        return None
    gate = gating.rule_in_force(view)
    return max(
        (e for e in holder.record.evidence if gate is None or e.gate_hash == gate.hash),
        key=lambda e: e.at,
        default=None,
    )


def _why_not(view: View) -> str:
    if view.desired.gate is None:
        return UNMEASURED
    return "owed" if gating.rule_in_force(view) else "nothing to measure: no rollout to another revision since"


def _of(found: StoredEvidence, holder: Revision, is_dry: bool) -> GateStatus:
    report: dict[str, Any] = json.loads(found.report) if found.report else {}
    return GateStatus(
        verdict=found.verdict,
        point=found.point,
        reason=str(report.get("reason", ""))[:2048],
        samples=int(report.get("samples", 0)),
        metrics=[_metric(entry) for entry in report.get("metrics", [])],
        digest=found.digest,
        since=instant(found.at),
        evidence=holder.name,
        dry_run=is_dry,
    )


def _metric(entry: dict[str, Any]) -> GateMetricStatus:
    bar = entry.get("bar") or {}
    value, low, high = (_number(entry.get(name)) for name in ("value", "low", "high"))
    return GateMetricStatus(
        name=str(entry.get("name", "")),
        value=value,
        low=low,
        high=high,
        min=bar.get("min"),
        max=bar.get("max"),
        verdict=str(entry.get("verdict", "")),
    )


def _number(value: Any) -> float | None:
    """Six digits are enough for people; JSON has no infinity."""
    return float(f"{value:.6g}") if isinstance(value, int | float) and math.isfinite(value) else None
