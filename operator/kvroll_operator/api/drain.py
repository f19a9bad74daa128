"""WorkerDrain: one per source worker per operation. Immutable spec, journal in status; deleting it cancels the drain."""

from enum import StrEnum

from pydantic import Field

from kvroll_core.words import WayOn
from kvroll_operator.api.parts import Spec


class DrainReason(StrEnum):
    """Why a worker is drained."""

    ROLLOUT = "Rollout"
    SCALE = "Scale"
    DELETE = "Delete"
    REQUEST = "Request"


class OnDrainDeadline(StrEnum):
    """What becomes of a drain that is late."""

    HOLD = "Hold"
    DROP = "Drop"


class DrainSpec(Spec):
    """Whom to drain, and the policy as it was when the drain began."""

    pod_name: str = Field(alias="podName", max_length=253, description="The worker's Pod.")
    pod_uid: str = Field(
        alias="podUID", max_length=64, description="The Pod that is meant; another of that name is not."
    )
    reason: DrainReason = Field(description="Why.")
    rollout: str = Field(default="", max_length=64, description="The rollout that it belongs to, empty for none.")
    allow: list[WayOn] = Field(min_length=1, max_length=7, description="Ways on in order of preference.")
    kv_across_weights: bool = Field(
        default=False, alias="kvAcrossWeights", description="KV made by other weights may be read on."
    )
    parallel: int = Field(default=1, ge=1, description="Moves at a time.")
    bytes_per_second: int | None = Field(
        default=None, alias="bytesPerSecond", ge=1, description="Bytes a second. Unset: unlimited."
    )
    max_downtime_ms: int = Field(
        default=50, alias="maxDowntimeMs", ge=1, description="Milliseconds that a move may freeze a session, as a goal."
    )
    deadline_seconds: int = Field(
        default=2700,
        alias="deadlineSeconds",
        ge=1,
        description="Seconds without a session moved or ended after which the drain is late.",
    )
    on_deadline: OnDrainDeadline = Field(
        default=OnDrainDeadline.HOLD,
        alias="onDeadline",
        description="When it is late: Hold waits on and says so, Drop lets go of the sessions that are left and counts them as lost.",
        json_schema_extra={"maxLength": 16},
    )
