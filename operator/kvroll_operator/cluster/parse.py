"""Reads API objects into what the rollout observes.

Anybody may write to them, so nothing is trusted that can be read from the object's name, which nobody can change.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from kvroll_core.plan import RolloutRecord
from kvroll_operator.api.drain import DrainSpec
from kvroll_operator.api.names import ADMITTED_AT_ANNOTATION, JOURNAL_FINALIZER, LABEL, slot_labels
from kvroll_operator.api.status import DrainStatus
from kvroll_operator.cluster.pods import CONTAINER
from kvroll_operator.rollout.facts.observed import (
    TALLY_WORDS,
    Pod,
    Report,
    Revision,
    SessionPolicy,
    Tally,
    Unreadable,
    WorkerDrain,
)

_DRAIN_FIELDS = frozenset(f.alias or name for name, f in DrainSpec.model_fields.items())
Json = Mapping[str, Any]
Read = TypeVar("Read")


class UnreadableError(ValueError):
    """An object is not of the form that the operator gives it."""


def read_all(
    kind: str, items: Iterable[Json], read: Callable[[Json], Read], *, stops: bool = False
) -> "Readings[Read]":
    """Each object by itself: one that cannot be read is named, and the others are there even so."""
    found: list[Read] = []
    failed: list[Unreadable] = []
    for item in items:
        try:
            found.append(read(item))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            name = (item.get("metadata") or {}).get("name", "?")
            failed.append(Unreadable(f"{kind} {name}", _why(error), stops))
    return tuple(found), tuple(failed)


Readings = tuple[tuple[Read, ...], tuple[Unreadable, ...]]


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:300]
    return (str(error) if isinstance(error, ValueError) else f"expected another shape, found {error!r}")[:300]


def seconds(instant: Any) -> float | None:
    """Unix seconds of a Kubernetes time; None where it is none."""
    try:
        return datetime.fromisoformat(instant).timestamp() if instant else None
    except (TypeError, ValueError, OverflowError):
        return None


def pod(item: Json, report: Report | None, pool: str = "") -> Pod:
    """A worker Pod of `pool` (empty: any). Its slot is read from the name, which nobody can change.

    Raises:
        UnreadableError: the name is not one that the operator gives.
    """
    metadata, status = item["metadata"], item.get("status") or {}
    labels: Json = metadata.get("labels") or {}
    annotations: Json = metadata.get("annotations") or {}
    revision, group, index, incarnation = _slot(metadata["name"], pool)
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    ready, scheduled = conditions.get("Ready", {}), conditions.get("PodScheduled", {})
    is_ready, is_scheduled = ready.get("status") == "True", scheduled.get("status") == "True"
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    admitted = labels.get(f"{LABEL}admitted")
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        revision=revision,
        group=group,
        index=index,
        incarnation=incarnation,
        created=seconds(metadata["creationTimestamp"]) or 0.0,
        admitted=None if admitted is None else admitted == "true",
        admitted_at=seconds(annotations.get(ADMITTED_AT_ANNOTATION)),
        protected=labels.get(f"{LABEL}protected") == "true",
        is_mislabelled=not slot_labels(revision, group, index, incarnation).items() <= labels.items(),
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


def _slot(name: str, pool: str) -> tuple[str, int, int, int]:
    parts = name.rsplit("-", 4)
    if (
        len(parts) != 5
        or not all(p.isascii() and p.isdigit() and len(p) < 7 for p in parts[2:])
        or pool not in ("", parts[0])
    ):
        raise UnreadableError(
            f"expected a name {pool or '<pool>'}-<revision>-<group>-<index>-<incarnation>; "
            "a Pod that the operator did not make is left alone"
        )
    return parts[1], int(parts[2]), int(parts[3]), int(parts[4])


def _failure(status: Json) -> str:
    """The last line that the worker's container left when it last ended with an error."""
    for container in status.get("containerStatuses") or []:
        for state in (container.get("state") or {}, container.get("lastState") or {}):
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
    containers = status.get("containerStatuses") or []
    return next((c.get("state") or {} for c in containers if c.get("name") == CONTAINER), {})


def revision(item: Json, pool: str = "") -> Revision:
    """A ControllerRevision of `pool`. Its short name is read from the object's.

    Raises:
        RecordError: its annotations are not what the operator wrote.
        UnreadableError: it is none of the operator's.
    """
    metadata = item["metadata"]
    name, content = metadata["name"], item["data"]["content"]
    owner, _, short = name.rpartition("-")
    if not owner or pool not in ("", owner):
        raise UnreadableError(f"expected a name {pool or '<pool>'}-<revision>")
    if not isinstance(json.loads(content), dict):
        raise UnreadableError("data.content: expected a JSON object")
    record = RolloutRecord.from_annotations(metadata.get("annotations") or {})
    if record.plan is not None and record.plan.to != short:
        raise UnreadableError(
            f"annotation {LABEL}plan: expected a plan to {short}, found one to {record.plan.to[:40]!r}"
        )
    return Revision(
        name=name,
        short=short,
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        number=int(item["revision"]),
        content=content,
        record=record,
        has_default_image=bool(item["data"].get("defaultImage")),
        has_empties=item["data"].get("version", 1) != 1,
    )


def drain(item: Json) -> WorkerDrain:
    """A WorkerDrain. A status that cannot be read is an empty one: the worker says it again."""
    metadata, labels = item["metadata"], item["metadata"].get("labels") or {}
    spec = DrainSpec.model_validate({name: value for name, value in item["spec"].items() if name in _DRAIN_FIELDS})
    try:
        status = DrainStatus.model_validate(item.get("status") or {})
    except ValidationError:
        status = DrainStatus()
    return WorkerDrain(
        name=metadata["name"],
        uid=metadata["uid"],
        pod_name=spec.pod_name,
        pod_uid=spec.pod_uid,
        reason=spec.reason,
        rollout=spec.rollout or str(labels.get(f"{LABEL}rollout", "")),
        created=seconds(metadata["creationTimestamp"]) or 0.0,
        group=_slot(spec.pod_name, "")[1],
        is_deleting="deletionTimestamp" in metadata,
        has_finalizer=JOURNAL_FINALIZER in (metadata.get("finalizers") or []),
        phase=status.phase,
        receipt=status.receipt,
        tally=Tally(**{name: getattr(status, name) for name in TALLY_WORDS}),
        remaining=status.remaining,
        progressed_at=seconds(status.last_progress_time),
        last_error=status.last_error,
        policy=SessionPolicy(
            allow=tuple(way.value for way in spec.allow),
            kv_across_weights=spec.kv_across_weights,
            parallel=spec.parallel,
            per_worker=spec.parallel,
            bytes_per_second=spec.bytes_per_second,
            max_downtime_ms=spec.max_downtime_ms,
            deadline_seconds=spec.deadline_seconds,
            drops_late=spec.on_deadline == "Drop",
        ),
    )
