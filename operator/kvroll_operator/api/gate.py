"""spec.gate: the user's quality bar, only fields that this version acts on; docs/gated-rollouts.md says what each source does with them."""

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from kvroll_operator.api import gate_rules as g
from kvroll_operator.api import rules as r
from kvroll_operator.api.parts import Spec

_OPEN: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


class GateSource(StrEnum):
    """Who measures."""

    BUILTIN = "Builtin"
    JOB = "Job"
    HTTP = "HTTP"
    PROMETHEUS = "Prometheus"


class GatePoint(StrEnum):
    """When a rollout is measured."""

    CANARY = "Canary"
    EVERY_GROUP = "EveryGroup"
    FINAL = "Final"


class ConfigMapKey(Spec):
    """A key of a ConfigMap in the pool's namespace."""

    name: str = Field(min_length=1, max_length=253, description="Name of the ConfigMap.")
    key: str = Field(min_length=1, max_length=253, description="The key under `data`.")


class GateDataset(Spec):
    """The texts and tasks that are measured, as JSONL; see docs/gate.md for its lines."""

    config_map: ConfigMapKey | None = Field(
        default=None, alias="configMap", description="A ConfigMap in the pool's namespace."
    )
    uri: str | None = Field(
        default=None,
        max_length=1024,
        description="http(s):// address, or file:/// path in the operator's Pod.",
        json_schema_extra=r.rules(g.DATASET_URI),
    )


class GateMetric(Spec):
    """One bar. There is no default: what a task can bear is not known from another."""

    name: str = Field(
        min_length=1,
        max_length=64,
        description="Builtin: top1Agreement, klMean, klP99, pplRatio, needleRecall or taskScore. Else a name that the source knows.",
    )
    min: float | None = Field(default=None, description="The metric must not be below.")
    max: float | None = Field(default=None, description="The metric must not be above.")
    query: str | None = Field(
        default=None,
        min_length=1,
        max_length=2048,
        description="Prometheus only: the query whose value is judged; every sample of a vector must hold the bar.",
    )


class GateJob(Spec):
    """Source Job: a Job that measures."""

    template: dict[str, Any] = Field(
        description="JobSpec. The Job gets the workers' addresses as environment; exit code 0 passes, 1 fails, any other is inconclusive.",
        json_schema_extra=_OPEN,
    )


class GateHeader(Spec):
    """One header of a request. It stands in clear text in the spec: no place for a secret."""

    name: str = Field(min_length=1, max_length=128, description="Name.", json_schema_extra=r.rules(g.HEADER_NAME))
    value: str = Field(max_length=1024, description="Value.", json_schema_extra=r.rules(g.HEADER_VALUE))


class GateHttp(Spec):
    """Source HTTP: a service that measures."""

    url: str = Field(
        max_length=1024,
        description="Gets a POST with the workers' addresses as JSON, answers with metrics as JSON.",
        json_schema_extra=r.rules(g.HTTP_URL),
    )
    headers: list[GateHeader] = Field(
        default_factory=list, max_length=16, description="Headers of the request, in clear text."
    )


class GatePrometheus(Spec):
    """Source Prometheus: judged by what it says of the new workers once they serve."""

    address: str = Field(
        max_length=1024,
        description="http(s):// address of the server.",
        json_schema_extra=r.rules(g.HTTP_URL),
    )
    interval_seconds: int = Field(
        default=30, alias="intervalSeconds", ge=1, le=3600, description="Seconds between two measurements."
    )
    initial_delay_seconds: int = Field(
        default=60,
        alias="initialDelaySeconds",
        ge=0,
        le=86400,
        description="Seconds that the new workers serve before the first measurement.",
    )


class Gate(Spec):
    """The quality bar that a new revision must hold before it takes traffic (source Prometheus: before the roll goes on)."""

    source: GateSource = Field(description="Who measures.", json_schema_extra={"maxLength": 16})
    at: list[Annotated[GatePoint, Field(json_schema_extra={"maxLength": 16})]] = Field(
        default=[GatePoint.CANARY],
        min_length=1,
        max_length=3,
        description="When: the first group of a rollout, each group, and once more after the last.",
        json_schema_extra=r.rules(g.UNIQUE_POINTS, g.FIRST_POINT),
    )
    dataset: GateDataset | None = Field(
        default=None,
        description="Builtin only: what is measured. Unset: a small set that comes with kvroll.",
        json_schema_extra=r.rules(g.ONE_DATASET),
    )
    metrics: list[GateMetric] = Field(
        default_factory=list,
        max_length=16,
        description="The bars. Job only: none means that its exit code decides.",
        json_schema_extra=r.merged(
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}, r.rules(g.ONE_END, g.SANE_BARS)
        ),
    )
    job: GateJob | None = Field(default=None, description="Source Job: what runs.")
    http: GateHttp | None = Field(default=None, description="Source HTTP: whom to ask.")
    prometheus: GatePrometheus | None = Field(default=None, description="Source Prometheus: whom to ask.")
    min_samples: int | None = Field(
        default=None,
        alias="minSamples",
        ge=1,
        le=1000000,
        description="Prompts (Prometheus: passed measurements) before a Pass; an answer about fewer is inconclusive.",
    )
    failure_limit: int = Field(
        default=0, alias="failureLimit", ge=0, le=100, description="Failed measurements to forgive; the next one fails."
    )
    inconclusive_limit: int = Field(
        default=0,
        alias="inconclusiveLimit",
        ge=0,
        le=100,
        description="Measurements to forgive that gave no verdict, or whose source did not answer.",
    )
    timeout_seconds: int = Field(
        default=1800,
        alias="timeoutSeconds",
        ge=1,
        le=604800,
        description="Seconds for one point; without a verdict by then it is Inconclusive, and the rollout pauses.",
    )
    dry_run: bool = Field(
        default=False, alias="dryRun", description="True: measure and record, but let every verdict through."
    )

    @property
    def hash(self) -> str:
        """Ten characters that name this very gate: evidence of another one does not count."""
        # Without what has its default: a field that a later version adds changes no gate of today.
        wish = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        text = json.dumps(wish, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]
