"""What the spec asks for, in the form that the transition reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroll_core.plan import OnFailure
from kvroll_core.words import DEFAULT_ALLOW
from kvroll_operator.api.gate import Gate, GatePoint, GateSource
from kvroll_operator.api.pool import Approval, PoolSpec
from kvroll_operator.api.wishes import content_of
from kvroll_operator.rollout.observed import Revision


@dataclass(frozen=True)
class SessionPolicy:
    """What a WorkerDrain copies when it begins."""

    allow: tuple[str, ...] = tuple(DEFAULT_ALLOW)
    kv_across_weights: bool = False
    parallel: int = 5
    per_worker: int = 2
    bytes_per_second: int | None = None
    max_downtime_ms: int = 50


@dataclass(frozen=True)
class GateRule:
    """What the rollout must know of spec.gate."""

    hash: str
    source: GateSource = GateSource.BUILTIN
    at: tuple[GatePoint, ...] = (GatePoint.CANARY,)
    timeout_seconds: int = 1800
    dry_run: bool = False


@dataclass(frozen=True)
class Desired:
    """A pool's spec. `content` is the canonical revision content, or empty with a `problem` that says why there is none."""

    pool: str
    uid: str
    content: str
    replicas: int = 1
    group_size: int = 1
    max_surge: int = 1
    max_unavailable: int = 0
    partition: int = 0
    paused: bool = False
    min_ready_seconds: int = 0
    progress_deadline_seconds: int = 1800
    on_failure: OnFailure = OnFailure.PAUSE
    approval: Approval = Approval.AUTO
    history_limit: int = 10
    policy: SessionPolicy = SessionPolicy()
    gate: GateRule | None = None
    generation: int = 1
    deleting: bool = False
    request: str = ""
    problem: str = ""

    @property
    def num_groups(self) -> int:
        """Groups that the pool shall have."""
        return 0 if self.deleting else -(-self.replicas // self.group_size)

    @property
    def num_workers(self) -> int:
        """Workers that the pool shall have."""
        return self.num_groups * self.group_size


def revision_content(spec: PoolSpec, revisions: tuple[Revision, ...], default_image: str) -> tuple[str, str]:
    """Canonical content of the revision that `spec` names, and a problem (one of the two is empty).

    An unset image is the newest revision's; only a pool without any takes the operator's default, so upgrading the operator rolls nothing.
    """
    image = _newest_image(revisions) or default_image
    if not image and not (spec.engine and spec.engine.image):
        return (
            "",
            "spec.engine.image is unset, and the operator was started without --worker-image: set one of them",
        )
    return content_of(spec, image), ""


def _newest_image(revisions: tuple[Revision, ...]) -> str:
    if not revisions:
        return ""
    newest = max(revisions, key=lambda r: (r.number, r.name))
    return str(json.loads(newest.content).get("engine", {}).get("image", ""))


def _gate_rule(gate: Gate) -> GateRule:
    return GateRule(gate.hash, gate.source, tuple(gate.at), gate.timeout_seconds, gate.dry_run)


def desired_from(
    metadata: Mapping[str, Any],
    spec: PoolSpec,
    revisions: tuple[Revision, ...],
    *,
    default_image: str = "",
    request: str = "",
) -> Desired:
    """The Desired of a pool object whose spec was parsed."""
    content, problem = revision_content(spec, revisions, default_image)
    rollout, sessions = spec.rollout, spec.sessions
    return Desired(
        pool=metadata["name"],
        uid=metadata["uid"],
        content=content,
        replicas=spec.num_workers,
        group_size=spec.groups.size,
        max_surge=rollout.max_surge,
        max_unavailable=rollout.max_unavailable,
        partition=rollout.partition,
        paused=rollout.paused,
        min_ready_seconds=rollout.min_ready_seconds,
        progress_deadline_seconds=rollout.progress_deadline_seconds,
        on_failure=rollout.on_failure,
        approval=rollout.approval,
        history_limit=rollout.revision_history_limit,
        policy=SessionPolicy(
            allow=tuple(word.value for word in sessions.allow),
            kv_across_weights=sessions.kv_across_weights,
            parallel=sessions.parallel,
            per_worker=sessions.per_worker,
            bytes_per_second=sessions.bytes_per_second,
            max_downtime_ms=sessions.max_downtime_ms,
        ),
        gate=_gate_rule(spec.gate) if spec.gate else None,
        generation=int(metadata.get("generation", 1)),
        deleting=bool(metadata.get("deletionTimestamp")),
        request=request,
        problem=problem,
    )
