"""What the spec asks for, in the form that the transition reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvroll_core.plan import OnFailure
from kvroll_operator.api.drain import OnDrainDeadline
from kvroll_operator.api.gate import Gate, GatePoint, GateSource
from kvroll_operator.api.pool import Approval, PoolSpec
from kvroll_operator.api.wishes import content_of
from kvroll_operator.rollout.facts.observed import Revision, SessionPolicy


@dataclass(frozen=True)
class GateRule:
    """What the rollout must know of spec.gate."""

    hash: str
    source: GateSource = GateSource.BUILTIN
    at: tuple[GatePoint, ...] = (GatePoint.CANARY,)
    timeout_seconds: int = 1800
    dry_run: bool = False


@dataclass(frozen=True)
class SpecProblem:
    """Why a spec is not accepted: a reason of the condition SpecAccepted, and words for people."""

    reason: str
    message: str


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
    policy: SessionPolicy = field(default_factory=SessionPolicy)
    gate: GateRule | None = None
    generation: int = 1
    deleting: bool = False
    request: str = ""
    problem: SpecProblem | None = None
    has_default_image: bool = False  # the content's image is not the spec's own

    @property
    def num_groups(self) -> int:
        """Groups that the pool shall have."""
        return 0 if self.deleting else -(-self.replicas // self.group_size)

    @property
    def num_workers(self) -> int:
        """Workers that the pool shall have."""
        return self.num_groups * self.group_size


def unset_image(revisions: tuple[Revision, ...], default_image: str) -> str:
    """The image of a spec that names none.

    It is the one that such a spec had last, so that neither an upgrade of the operator nor taking a wrong image out of the spec again leads
    anywhere else; in a pool whose spec always named one, the last good revision's; in one that has no revision, the operator's default.
    """
    ranked = sorted(revisions, key=lambda r: (r.has_default_image, r.record.stable, r.number, r.name))
    return (str(json.loads(ranked[-1].content).get("engine", {}).get("image", "")) if ranked else "") or default_image


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
    is_image_set = bool(spec.engine and spec.engine.image)
    image = unset_image(revisions, default_image)
    problem = None
    if not image and not is_image_set:
        problem = SpecProblem(
            "NoImage",
            "spec.engine.image is unset, and the operator was started without --worker-image: set one of them",
        )
    rollout, sessions = spec.rollout, spec.sessions
    return Desired(
        pool=metadata["name"],
        uid=metadata["uid"],
        content="" if problem else content_of(spec, image),
        replicas=spec.replicas,
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
            deadline_seconds=sessions.drain_deadline_seconds,
            drops_late=sessions.on_drain_deadline is OnDrainDeadline.DROP,
        ),
        gate=_gate_rule(spec.gate) if spec.gate else None,
        generation=int(metadata.get("generation", 1)),
        deleting=bool(metadata.get("deletionTimestamp")),
        request=request,
        problem=problem,
        has_default_image=not is_image_set,
    )
