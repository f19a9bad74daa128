"""The status of an InferencePool and of a WorkerDrain. Rendered from observations, never read to decide."""

from pydantic import Field

from kvroll_operator.api.gate_status import GateStatus
from kvroll_operator.api.parts import Status
from kvroll_operator.api.plan import PlanStatus
from kvroll_operator.api.wall import WallStatus


class Condition(Status):
    """A condition in the form that kubectl wait reads."""

    type: str = Field(description="Name of the condition.", max_length=64)
    status: str = Field(description="True, False or Unknown.", json_schema_extra={"enum": ["True", "False", "Unknown"]})
    reason: str = Field(description="One CamelCase word.", max_length=64)
    message: str = Field(default="", description="For people.", max_length=2048)
    observed_generation: int = Field(default=0, description="Generation of the spec that this is about.")
    last_transition_time: str | None = Field(
        default=None, description="When `status` last changed.", json_schema_extra={"format": "date-time"}
    )


class SessionTally(Status):
    """What became of sessions, by way on."""

    held: int = Field(default=0, description="Sessions in progress when the drains began.")
    finished_soon: int = Field(default=0, description="Ended sooner than a move would have taken.")
    exact: int = Field(default=0, description="Moved, token for token the same.")
    converted: int = Field(default=0, description="Moved, KV cache transcoded.")
    replayed: int = Field(default=0, description="Moved as tokens, KV cache computed again.")
    checkpointed: int = Field(default=0, description="Written to a store.")
    finished: int = Field(default=0, description="Ended where they were.")
    lost: int = Field(default=0, description="Neither moved nor ended.")
    wire_bytes: int = Field(default=0, description="Bytes sent by moves.")
    unique_bytes: int = Field(default=0, description="Bytes of the distinct pages that were sent, each once.")
    tokens_replayed: int = Field(default=0, description="Tokens computed again.")


class RolloutSessions(SessionTally):
    """The tally of a whole rollout."""

    remaining: int = Field(default=0, description="Sessions still on workers that are being drained.")
    moved: int = Field(default=0, description="exact + converted + replayed.")


class DrainStatus(SessionTally):
    """Journal of a drain."""

    phase: str = Field(
        default="Pending",
        description="Pending, Draining, Sealed, Gone (its Pod is), Expired (late, what was left is lost) or Cancelled.",
        json_schema_extra={"enum": ["Pending", "Draining", "Sealed", "Gone", "Expired", "Cancelled"]},
    )
    remaining: int = Field(default=0, description="Sessions still on the worker.")
    receipt: str = Field(
        default="", description="Instance that sealed itself at zero sessions: the evidence to delete."
    )
    last_error: str = Field(default="", description="The newest failure of a move.")
    last_progress_time: str | None = Field(
        default=None, description="When a session last moved or ended.", json_schema_extra={"format": "date-time"}
    )


class RolloutStatus(Status):
    """The plan in force. Stays after completion, so that a report can read it."""

    id: str = Field(default="", description="Name of this rollout.")
    from_: str = Field(default="", validation_alias="from", serialization_alias="from", description="Revision before.")
    to: str = Field(default="", description="Revision after.")
    reason: str = Field(default="", description="Initial, Update, Revert, Rollback or MakeRoom.")
    phase: str = Field(
        default="",
        description="AwaitingApproval, Rolling, Paused, Queued, PartitionReached, Failed, RolledBack or Complete.",
    )
    message: str = Field(default="", description="For people.")
    started_at: str | None = Field(
        default=None, description="When the plan was written.", json_schema_extra={"format": "date-time"}
    )
    began_at: str | None = Field(
        default=None, description="When its first group entered.", json_schema_extra={"format": "date-time"}
    )
    finished_at: str | None = Field(
        default=None, description="When it was complete.", json_schema_extra={"format": "date-time"}
    )
    groups_updated: int = Field(default=0, description="Groups that are through.")
    groups_total: int = Field(default=0, description="Groups of the pool.")
    group: str = Field(default="", description="groupsUpdated/groupsTotal.")
    queued_revision: str = Field(default="", description="Newer revision that waits for the group in turn.")
    sessions: RolloutSessions = Field(default=RolloutSessions(), description="What became of sessions in this rollout.")


class GroupStatus(Status):
    """One group."""

    id: int = Field(description="Number of the group.")
    phase: str = Field(
        description="Stable, Surging, Warming, Gating, Admitting, Draining, Sealed, Retiring, Reverting, Refilling, Leaving or Updated."
    )
    revision: str = Field(default="", description="Revision that serves.")
    target_revision: str = Field(default="", description="Revision that the group shall have.")
    sessions: int = Field(default=0, description="Sessions on its workers.")


class PrecisionShare(Status):
    """Workers of one precision."""

    revision: str = Field(description="Revision.")
    weights: str = Field(description="dtype of the weights.")
    kv_cache: str = Field(description="dtype of the KV cache.")
    workers: int = Field(description="Workers that serve.")
    kv_bytes_per_token: float = Field(default=0.0, description="Bytes of one cached token, as the workers report them.")


class SessionsNow(Status):
    """Sessions in the pool."""

    active: int = Field(default=0, description="Sessions that the reachable workers hold.")
    lost: int = Field(default=0, description="Sessions lost in drains, of whatever reason, since the pool was made.")


class PoolStatus(Status):
    """What was observed."""

    observed_generation: int = Field(default=0, description="Generation of the spec that this status is about.")
    replicas: int = Field(default=0, description="Worker Pods that are not leaving.")
    ready_replicas: int = Field(default=0, description="Workers that are Ready.")
    admitted_replicas: int = Field(default=0, description="Workers that take new sessions.")
    updated_replicas: int = Field(default=0, description="Workers that serve at the update revision.")
    ready: str = Field(default="", description="admittedReplicas/replicas wanted.")
    updated: str = Field(default="", description="updatedReplicas/replicas wanted.")
    selector: str = Field(default="", description="Selects the workers that count for an autoscaler.")
    current_revision: str = Field(default="", description="Last revision whose rollout completed.")
    update_revision: str = Field(default="", description="Revision of the spec.")
    precision_mix: list[PrecisionShare] = Field(default_factory=list, description="Workers by precision.")
    groups: list[GroupStatus] = Field(
        default_factory=list,
        description="The groups.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
    )
    rollout: RolloutStatus = Field(default=RolloutStatus(), description="The plan in force.")
    plan: PlanStatus = Field(
        default=PlanStatus(), description="What the plan in force was, or will be, priced at, beside what it came to."
    )
    sessions: SessionsNow = Field(default=SessionsNow(), description="Sessions in the pool.")
    gate: GateStatus = Field(default=GateStatus(), description="What the quality gate found.")
    wall: WallStatus = Field(default=WallStatus(), description="What the pool is short of, and what would change it.")
    failed_revisions: list[str] = Field(default_factory=list, description="Revisions that failed and are pinned.")
    blocked: str = Field(default="", description="What the rollout waits for, in one word; empty if nothing.")
    conditions: list[Condition] = Field(
        default_factory=list,
        description="Conditions.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
