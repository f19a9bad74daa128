"""Reads API objects into what the rollout observes. Our labels are written with the object, so they are there."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kvroll_core.plan import Record
from kvroll_operator.api.status import DrainStatus
from kvroll_operator.cluster.paths import LABEL
from kvroll_operator.cluster.pods import CONTAINER
from kvroll_operator.rollout.observed import Drain, Pod, Report, Revision, Tally

Json = Mapping[str, Any]


def seconds(instant: str | None) -> float | None:
    """Unix seconds of a Kubernetes time."""
    return datetime.fromisoformat(instant).timestamp() if instant else None


def pod(item: Json, report: Report | None) -> Pod:
    """A worker Pod."""
    metadata, status = item["metadata"], item.get("status", {})
    labels: Json = metadata["labels"]
    conditions = {c["type"]: c for c in status.get("conditions", [])}
    ready, scheduled = conditions.get("Ready", {}), conditions.get("PodScheduled", {})
    is_ready, is_scheduled = ready.get("status") == "True", scheduled.get("status") == "True"
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    admitted = labels.get(f"{LABEL}admitted")
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        revision=labels[f"{LABEL}revision"],
        group=int(labels[f"{LABEL}group"]),
        index=int(labels[f"{LABEL}index"]),
        incarnation=int(labels[f"{LABEL}incarnation"]),
        created=seconds(metadata["creationTimestamp"]) or 0.0,
        admitted=None if admitted is None else admitted == "true",
        protected=labels.get(f"{LABEL}protected") == "true",
        phase=status.get("phase", "Pending"),
        scheduled=is_scheduled,
        unschedulable_since=seconds(scheduled.get("lastTransitionTime")) if unschedulable else None,
        ready_since=seconds(ready.get("lastTransitionTime")) if is_ready else None,
        not_ready_since=None if is_ready else seconds(ready.get("lastTransitionTime")),
        started_at=seconds(_engine_state(status).get("running", {}).get("startedAt")),
        gone_by=seconds(metadata.get("deletionTimestamp")),
        terminated=_is_terminated(status),
        failure="" if is_ready else _failure(status),
        report=report,
    )


def _failure(status: Json) -> str:
    """The last line that the worker's container left when it last ended with an error."""
    for container in status.get("containerStatuses", []):
        for state in (container.get("state", {}), container.get("lastState", {})):
            ended = state.get("terminated", {})
            if container.get("name") == CONTAINER and ended.get("exitCode"):
                lines = (ended.get("message") or ended.get("reason") or "").strip().splitlines()
                return lines[-1] if lines else f"exit code {ended['exitCode']}"
    return ""


def _is_terminated(status: Json) -> bool:
    """The kubelet itself says that the worker's container is not running."""
    state = _engine_state(status)
    return "terminated" in state or state.get("waiting", {}).get("reason") == "CrashLoopBackOff"


def _engine_state(status: Json) -> Json:
    states = (c.get("state", {}) for c in status.get("containerStatuses", []) if c.get("name") == CONTAINER)
    return next(states, {})


def revision(item: Json) -> Revision:
    """A ControllerRevision of ours."""
    metadata = item["metadata"]
    return Revision(
        name=metadata["name"],
        short=metadata["labels"][f"{LABEL}revision"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        number=int(item["revision"]),
        content=item["data"]["content"],
        record=Record.from_annotations(metadata.get("annotations", {})),
    )


def drain(item: Json) -> Drain:
    """A WorkerDrain."""
    metadata, spec = item["metadata"], item["spec"]
    labels: Json = metadata.get("labels", {})
    status = DrainStatus.model_validate(item.get("status", {}))
    return Drain(
        name=metadata["name"],
        uid=metadata["uid"],
        pod_name=spec["podName"],
        pod_uid=spec["podUID"],
        reason=spec["reason"],
        rollout=labels.get(f"{LABEL}rollout", ""),
        created=seconds(metadata["creationTimestamp"]) or 0.0,
        group=int(labels.get(f"{LABEL}group", -1)),
        is_deleting="deletionTimestamp" in metadata,
        phase=status.phase,
        receipt=status.receipt,
        tally=Tally(**{name: getattr(status, name) for name in Tally.__dataclass_fields__}),
        remaining=status.remaining,
        progressed_at=seconds(status.last_progress_time),
        last_error=status.last_error,
    )
