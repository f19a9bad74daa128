"""InferencePool, as users write it. Only fields that this version acts on are here; docs/rollout.md lists what is left out."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from kvroll_core.plan import OnFailure
from kvroll_core.precision.formats import HEADS, KV_FORMATS, PAGE_TOKENS, WEIGHT_FORMATS
from kvroll_core.precision.sealing import DEFAULT_RESIDUAL_TOKENS
from kvroll_core.words import DEFAULT_ALLOW, WayOn
from kvroll_operator.api import rules as r
from kvroll_operator.api.drain import OnDrainDeadline
from kvroll_operator.api.gate import Gate
from kvroll_operator.api.gate_rules import PARTS
from kvroll_operator.api.parts import Spec

_OPEN: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
_INT_OR_STRING: dict[str, Any] = {"x-kubernetes-int-or-string": True}
Quantity = Annotated[int | str, Field(json_schema_extra=_INT_OR_STRING)]


class Model(Spec):
    """Which model the pool serves."""

    name: str = Field(
        min_length=1,
        max_length=128,
        description="Name that clients use. Immutable.",
        json_schema_extra=r.rules(r.NAME_IMMUTABLE),
    )
    uri: str = Field(
        max_length=512,
        description="Hugging Face folder with the checkpoint: file:///path in the worker's image, or pvc://claim/path.",
        json_schema_extra=r.rules(r.URI),
    )


class Precision(Spec):
    """The pair of dtypes that a rollout changes."""

    weights: str = Field(
        description="dtype of the weights; quantised when a worker loads the checkpoint.",
        json_schema_extra=r.merged({"enum": list(WEIGHT_FORMATS), "maxLength": 16}, r.rules(r.WEIGHTS_BUILT)),
    )
    weight_block: int | None = Field(
        default=None,
        alias="weightBlockSize",
        description="Inputs that share a scale of int4; dtypes without such a choice ignore it. Unset: 64.",
        json_schema_extra={"enum": list(WEIGHT_FORMATS["int4"].block_sizes)},
    )
    head: str | None = Field(
        default=None,
        description="int8: the output head in int8, and the embedding with it where they are tied. Unset or Same: 16-bit.",
        json_schema_extra={"enum": list(HEADS), "maxLength": 16},
    )
    kv_cache: str = Field(
        alias="kvCache",
        description="dtype of the KV cache.",
        json_schema_extra=r.merged({"enum": list(KV_FORMATS), "maxLength": 16}, r.rules(r.KV_BUILT)),
    )
    skip_layers: list[Annotated[int, Field(ge=0, le=1023)]] = Field(
        default_factory=list,
        alias="skipLayers",
        max_length=128,
        description="Layers, counted from 0, whose KV stays bf16 while the others have kvCache.",
        json_schema_extra=r.rules(r.LAYERS_ONCE),
    )
    residual_tokens: int | None = Field(
        default=None,
        alias="residualTokens",
        ge=PAGE_TOKENS,
        le=65536,
        multiple_of=PAGE_TOKENS,
        description=f"Newest tokens of a session that kivi4 and kivi2 keep in bf16. Unset: {DEFAULT_RESIDUAL_TOKENS}.",
        json_schema_extra=r.rules(r.RESIDUAL_PAGES),
    )


class Engine(Spec):
    """How a worker runs. A change of any of these makes a new revision."""

    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="Worker image. Unset: the newest revision's, so that upgrading the operator rolls nothing.",
    )
    max_model_len: int | None = Field(
        default=None,
        alias="maxModelLen",
        ge=1,
        le=2**24,
        description="Longest context, in tokens. Unset: the model's own.",
    )
    kv_memory: str | None = Field(
        default=None,
        alias="kvMemory",
        max_length=32,
        description="Memory for KV pages, a quantity of bytes.",
        json_schema_extra=r.rules(r.QUANTITY),
    )
    max_sessions: int | None = Field(
        default=None, alias="maxSessions", ge=1, le=65536, description="Sessions that one worker holds at most."
    )
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="CPU threads of one worker. Unset: what its cgroup gives it."
    )
    args: list[Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=list, max_length=64, description="More arguments for the worker's command line, appended last."
    )


class Resources(Spec):
    """Resources of the worker's container, as in a Pod."""

    limits: dict[str, Quantity] = Field(default_factory=dict, description="Most that a worker may use.")
    requests: dict[str, Quantity] = Field(
        default_factory=dict, description="What the scheduler sets aside for a worker."
    )


class Groups(Spec):
    """The unit of a rollout."""

    size: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Workers that are drained together. Immutable.",
        json_schema_extra=r.rules(r.SIZE_IMMUTABLE),
    )


class Approval(StrEnum):
    """Whether a rollout waits for a user."""

    AUTO = "Auto"
    PLAN = "Plan"


class Rollout(Spec):
    """How a change of revision goes through the groups. Counts are of groups."""

    max_surge: int = Field(
        default=1,
        alias="maxSurge",
        ge=0,
        le=1000,
        description="Groups that may exist beyond `replicas` while they are changed.",
    )
    max_unavailable: int = Field(
        default=0,
        alias="maxUnavailable",
        ge=0,
        le=1000,
        description="Groups that may be out of service for a rollout. With maxSurge 0 the old workers of a group are drained first.",
    )
    partition: int = Field(default=0, ge=0, le=100000, description="Groups that stay on the old revision.")
    paused: bool = Field(
        default=False,
        description="True: no group enters the rollout and no first worker of a group is closed; drains under way end.",
    )
    min_ready_seconds: int = Field(
        default=0,
        alias="minReadySeconds",
        ge=0,
        le=86400,
        description="Seconds a new worker must serve before an old one is closed.",
    )
    progress_deadline_seconds: int = Field(
        default=1800,
        alias="progressDeadlineSeconds",
        ge=1,
        le=604800,
        description="Seconds without a session moved or ended and without a group entered after which the rollout fails.",
    )
    on_failure: OnFailure = Field(
        default=OnFailure.PAUSE,
        alias="onFailure",
        description="After a failure: hold where it is, or go back to the last good revision.",
    )
    approval: Approval = Field(
        default=Approval.AUTO,
        description="Plan: no group enters a rollout to a new revision before `kvroll approve`; see status.plan for its price.",
    )
    revision_history_limit: int = Field(
        default=10, alias="revisionHistoryLimit", ge=0, le=100, description="Unused ControllerRevisions to keep."
    )


class Sessions(Spec):
    """What may become of the sessions that a drain finds. Copied into each WorkerDrain when it begins."""

    allow: list[Annotated[WayOn, Field(json_schema_extra={"maxLength": 16})]] = Field(
        default=list(DEFAULT_ALLOW),
        min_length=1,
        max_length=7,
        description="Ways on in order of preference; what is absent never happens.",
        json_schema_extra=r.rules(r.UNIQUE, r.NO_CHECKPOINT, r.DROP_LAST, r.SOME_WAY),
    )
    kv_across_weights: bool = Field(
        default=False,
        alias="kvAcrossWeights",
        description="True: KV made by other weights of the same model may be read on; its quality is yours to judge.",
    )
    parallel: int = Field(default=5, ge=1, le=1000, description="Moves at a time in the pool.")
    per_worker: int = Field(default=2, alias="perWorker", ge=1, le=1000, description="Moves at a time from one worker.")
    bytes_per_second: int | None = Field(
        default=None,
        alias="bytesPerSecond",
        ge=1,
        description="Bytes a second that one worker's moves may send. Unset: unlimited.",
    )
    max_downtime_ms: int = Field(
        default=50,
        alias="maxDowntimeMs",
        ge=1,
        le=600000,
        description="Milliseconds that a move may freeze a session, as a goal.",
    )
    drain_deadline_seconds: int = Field(
        default=2700,
        alias="drainDeadlineSeconds",
        ge=1,
        le=604800,
        description="Seconds without a session moved or ended, or without an answer of the worker, after which a drain is late.",
    )
    on_drain_deadline: OnDrainDeadline = Field(
        default=OnDrainDeadline.HOLD,
        alias="onDrainDeadline",
        description="When a drain is late: Hold waits on and says so, Drop lets go of the sessions that are left and counts them as lost.",
        json_schema_extra={"maxLength": 16},
    )


class PoolSpec(Spec):
    """What the pool shall be."""

    replicas: int = Field(
        default=1,
        ge=0,
        le=10000,
        description="Workers, rounded up to whole groups. An autoscaler may own it: leave it out.",
    )
    model: Model = Field(description="The model.")
    precision: Precision = Field(description="The precision; changing it is what a rollout is for.")
    engine: Engine | None = Field(default=None, description="How a worker runs.")
    resources: Resources | None = Field(default=None, description="Resources of the worker's container.")
    template: dict[str, Any] | None = Field(
        default=None,
        description="PodTemplateSpec that is merged under the worker's own; containers by name, the worker's is `engine`.",
        json_schema_extra=_OPEN,
    )
    groups: Groups = Field(default=Groups(), description="The unit of a rollout.", json_schema_extra={"default": {}})
    rollout: Rollout = Field(
        default=Rollout(), description="How a change goes through the groups.", json_schema_extra={"default": {}}
    )
    sessions: Sessions = Field(
        default=Sessions(), description="What may become of sessions.", json_schema_extra={"default": {}}
    )
    gate: Gate | None = Field(
        default=None,
        description="The quality bar that a new revision must hold. Unset: a rollout's quality stays unmeasured.",
        json_schema_extra=r.rules(*PARTS),
    )
