"""status.gate: what the quality gate of the rollout in force found."""

from pydantic import Field

from kvroll_operator.api.parts import Status


class GateMetricStatus(Status):
    """One metric against its bar."""

    name: str = Field(description="Name.")
    value: float | None = Field(default=None, description="What was measured; unset: nothing was.")
    low: float | None = Field(default=None, description="Lower end of the interval that the verdict rests on.")
    high: float | None = Field(default=None, description="Upper end of it.")
    min: float | None = Field(default=None, description="The bar: not below.")
    max: float | None = Field(default=None, description="The bar: not above.")
    verdict: str = Field(default="", description="Pass, Fail or Inconclusive.")


class GateStatus(Status):
    """The newest verdict. The gate decides by the record on the ControllerRevision that `evidence` names, never by this."""

    verdict: str = Field(default="NotRun", description="NotRun, Running, Pass, Fail or Inconclusive.")
    point: str = Field(default="", description="Canary, G<group>, Final, or Baseline while an old worker is asked.")
    reason: str = Field(default="", description="Why, for people.", max_length=2048)
    samples: int = Field(default=0, description="Prompts or measurements used.")
    metrics: list[GateMetricStatus] = Field(
        default_factory=list,
        description="The metrics.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    digest: str = Field(default="", description="SHA-256 of the evidence.")
    since: str | None = Field(
        default=None, description="When it began, or was stored.", json_schema_extra={"format": "date-time"}
    )
    evidence: str = Field(
        default="", description="The ControllerRevision whose annotation kvroll.dev/evidence holds the whole report."
    )
    dry_run: bool = Field(default=False, description="The verdict was let through whatever it was.")
