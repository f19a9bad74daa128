"""Kubernetes Events about a pool, with reasons from a fixed list."""

import itertools
import json
from datetime import UTC, datetime
from typing import Any

from kvroll_core.plan import StoredEvidence
from kvroll_operator.api import API_VERSION
from kvroll_operator.cluster.client import FIELD_MANAGER
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.rollout.act import effects as fx
from kvroll_operator.rollout.decide import writes
from kvroll_operator.rollout.transition import Effect

Json = dict[str, Any]
REASONS = frozenset(
    {
        "RevisionCreated",
        "RolloutStarted",
        "RolloutApproved",
        "WorkerDrainAsked",
        "GroupEntered",
        "GroupUpdated",
        "RolloutComplete",
        "RolloutFailed",
        "WorkerCreated",
        "WorkerAdmitted",
        "WorkerClosed",
        "DrainStarted",
        "DrainCancelled",
        "WorkerDeleted",
        "GateStarted",
        "GatePassed",
        "GateFailed",
        "GateInconclusive",
        "BaselineKept",
        "CreateRefused",
        "LabelsRestored",
        "SessionsLetGo",
    }
)
_WARNINGS = frozenset(
    {"RolloutFailed", "GateFailed", "GateInconclusive", "CreateRefused", "LabelsRestored", "SessionsLetGo"}
)
_GATE_REASONS = {"Pass": "GatePassed", "Fail": "GateFailed", "Inconclusive": "GateInconclusive"}
_serial = itertools.count()


def about(effect: Effect) -> tuple[str, str] | None:
    """(reason, note) of the event that an effect deserves, None for none."""
    match effect:
        case writes.CreateRevision():
            return "RevisionCreated", f"revision {effect.short}"
        case writes.WriteRecord():
            return _about_record(effect)
        case fx.CreatePod():
            return "WorkerCreated", f"group {effect.group} worker {effect.index} of revision {effect.revision.short}"
        case fx.LabelAdmitted():
            return ("WorkerAdmitted" if effect.admitted else "WorkerClosed"), effect.pod.name
        case fx.CreateDrain():
            return "DrainStarted", f"{effect.pod.name}: {effect.reason}"
        case fx.CancelDrain():
            return "DrainCancelled", effect.drain.pod_name
        case fx.RestoreLabels():
            return "LabelsRestored", f"{effect.pod.name}: labels that its name repeats, or its protection, were changed"
        case fx.RecordDrain(phase="Expired"):
            return "SessionsLetGo", f"{effect.drain.pod_name}: {effect.last_error}"
        case fx.StartGate():
            return "GateStarted", _about_run(effect)
        case fx.DeletePod():
            return "WorkerDeleted", f"{effect.pod.name}: {effect.evidence}"
        case _:
            return None


def _about_record(effect: writes.WriteRecord) -> tuple[str, str] | None:
    before, after = effect.revision.record, effect.record
    plan = after.plan
    if plan is None:
        return None
    if before.plan is None or before.plan.id != plan.id:
        return "RolloutStarted", f"{plan.id}: {plan.reason} from {plan.from_revision or 'nothing'} to {plan.to}"
    if after.approved and before.approved != after.approved:
        return "RolloutApproved", f"{plan.id}: approved by request"
    for found in after.evidence:
        if found.digest not in {e.digest for e in before.evidence}:
            return _GATE_REASONS.get(
                found.verdict, "GateInconclusive"
            ), f"{plan.id}: {found.point}: {_reason_of(found)}"
    if after.baseline - before.baseline:
        return "BaselineKept", f"{plan.id}: an old worker's answers are kept for the gate"
    if after.leaving - before.leaving:
        return "WorkerDrainAsked", f"Pod UID {', '.join(sorted(after.leaving - before.leaving))}: by request"
    if plan.ended and not before.plan.ended:
        return "RolloutFailed", f"{plan.id}: {plan.ended}"
    if after.stable > before.stable:
        return "RolloutComplete", f"{plan.id}: every group runs {plan.to}"
    if after.done - before.done:
        return "GroupUpdated", f"{plan.id}: group {', '.join(str(g) for g in sorted(after.done - before.done))}"
    entered = {t.group for t in after.turn} - {t.group for t in before.turn}
    return ("GroupEntered", f"{plan.id}: group {', '.join(str(g) for g in sorted(entered))}") if entered else None


def _about_run(effect: fx.StartGate) -> str:
    old, new = effect.baseline, effect.candidate
    against = "the kept baseline" if effect.is_kept else old.worker_id if old else "nothing"
    return f"{effect.plan}: {effect.point}: " + (f"{new.worker_id} against {against}" if new else f"asks {against}")


def _reason_of(found: StoredEvidence) -> str:
    return str(json.loads(found.report).get("reason", "")) if found.report else found.verdict


def event(owner: Owner, reason: str, note: str) -> Json:
    """An Event object about the pool."""
    assert reason in REASONS, reason
    now = datetime.now(UTC)
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{owner.name}.{int(now.timestamp() * 1e6):x}.{next(_serial)}",
            "namespace": owner.namespace,
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": "kvroll.dev/operator",
        "reportingInstance": FIELD_MANAGER,
        "action": reason,
        "reason": reason,
        "note": note[:1000],
        "type": "Warning" if reason in _WARNINGS else "Normal",
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": "InferencePool",
            "name": owner.name,
            "namespace": owner.namespace,
            "uid": owner.uid,
        },
    }
