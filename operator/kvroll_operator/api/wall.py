"""The wall of a pool, as it stands in a status."""

from pydantic import Field

from kvroll_core.wall import Basis, Judged, Wall
from kvroll_operator.api.parts import Status

_WAITS = "nothing is known yet: a verdict needs a window of half a minute of workers that serve"


class WallFigure(Status):
    """One piece of evidence."""

    name: str = Field(description="What it is, with its unit; shares are from 0 to 1.")
    value: float = Field(description="Over the window.")
    threshold: float | None = Field(default=None, description="What it is compared with, where it is.")
    over: bool = Field(default=False, description="At or over its threshold.")


class WallAdvice(Status):
    """One thing to change, the best first."""

    lever: str = Field(description="kvCache, weights, batch, replica or nothing.")
    to: str = Field(description="What to change it to.")
    why: str = Field(description="For people.", max_length=1024)
    sessions_ratio: float | None = Field(default=None, description="Sessions that fit then, over now.")
    step_ratio: float | None = Field(
        default=None, description="Seconds of a step then, over now; absent where not measured."
    )


class WallStatus(Status):
    """What the pool is short of, judged at most twice a minute."""

    verdict: str = Field(
        default=Wall.UNKNOWN.value,
        description="Bandwidth, Capacity, Both, Compute, Host, Idle or Unknown.",
        json_schema_extra={"enum": [wall.value for wall in Wall]},
    )
    basis: str = Field(
        default=Basis.MODELLED.value,
        description="Counter: the device's memory counter was read. Modelled: bytes by the model over the measured bandwidth.",
        json_schema_extra={"enum": [Basis.MODELLED.value, Basis.COUNTER.value]},
    )
    message: str = Field(default=_WAITS, description="For people.", max_length=1024)
    evidence: list[WallFigure] = Field(default_factory=list, description="Figures of the pool's mean worker.")
    advice: list[WallAdvice] = Field(default_factory=list, description="What to change, with the predicted effect.")


def wall_status(judged: Judged | None) -> WallStatus:
    """How a verdict is shown: figures that nobody tells are left out, three digits are enough."""
    if judged is None:
        return WallStatus()
    verdict = judged.verdict
    return WallStatus(
        verdict=verdict.wall.value,
        basis=verdict.basis.value,
        message=verdict.says,
        evidence=[
            WallFigure(name=f.name, value=_short(f.value), threshold=_rounded(f.threshold), over=f.is_over)
            for f in verdict.evidence
            if f.value is not None
        ],
        advice=[
            WallAdvice(
                lever=a.lever,
                to=a.to,
                why=a.why,
                sessions_ratio=_rounded(a.effect.sessions_ratio if a.effect else None),
                step_ratio=_rounded(a.effect.step_ratio if a.effect else None),
            )
            for a in judged.advice
        ],
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else _short(value)


def _short(value: float) -> float:
    return float(f"{value:.3g}")
