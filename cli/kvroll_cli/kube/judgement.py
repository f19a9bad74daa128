"""What a status says of the gate and of the wall, as far as it says it: an older operator tells the verdict alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CALM_GATE = frozenset({"Pass", "NotRun", ""})
CALM_WALL = frozenset({"Idle", "Unknown", ""})


@dataclass(frozen=True)
class GateMetricNow:
    """One metric against its bar; None where nothing was measured, or no such bar is set."""

    name: str
    value: float | None
    min: float | None
    max: float | None
    verdict: str

    @property
    def bar(self) -> str:
        """The bar in words: `>= 0.97`."""
        sides = [f">= {self.min:g}" if self.min is not None else "", f"<= {self.max:g}" if self.max is not None else ""]
        return " and ".join(side for side in sides if side)


@dataclass(frozen=True)
class GateNow:
    """The newest verdict of the gate."""

    verdict: str
    point: str
    reason: str
    samples: int
    metrics: tuple[GateMetricNow, ...]

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> "GateNow":
        """Reads `status.gate`."""
        found = status.get("gate") or {}
        return cls(
            verdict=str(found.get("verdict", "NotRun")),
            point=str(found.get("point", "")),
            reason=str(found.get("reason", "")),
            samples=int(found.get("samples", 0)),
            metrics=tuple(_metric(one) for one in found.get("metrics") or ()),
        )


@dataclass(frozen=True)
class AdviceNow:
    """One thing to change; ratios are then over now, None where they are not known."""

    lever: str
    to: str
    why: str
    sessions_ratio: float | None
    step_ratio: float | None

    @property
    def words(self) -> str:
        """`kvCache int8: why (1.94 x the sessions, 0.98 x a step)`"""
        effects = [
            f"{ratio:g} x {what}"
            for ratio, what in ((self.sessions_ratio, "the sessions"), (self.step_ratio, "a step"))
            if ratio is not None
        ]
        head = " ".join(part for part in (self.lever, self.to) if part and part != "nothing")
        text = ": ".join(part for part in (head, self.why) if part)
        return f"{text} ({', '.join(effects)})" if effects else text


@dataclass(frozen=True)
class WallNow:
    """What the pool is short of; `basis` is Modelled or Counter."""

    verdict: str
    basis: str
    message: str
    advice: tuple[AdviceNow, ...]

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> "WallNow":
        """Reads `status.wall`."""
        found = status.get("wall") or {}
        return cls(
            verdict=str(found.get("verdict", "Unknown")),
            basis=str(found.get("basis", "")),
            message=str(found.get("message", "")),
            advice=tuple(_advice(one) for one in found.get("advice") or ()),
        )


def _metric(found: Mapping[str, Any]) -> GateMetricNow:
    return GateMetricNow(
        name=str(found.get("name", "")),
        value=found.get("value"),
        min=found.get("min"),
        max=found.get("max"),
        verdict=str(found.get("verdict", "")),
    )


def _advice(found: Mapping[str, Any]) -> AdviceNow:
    return AdviceNow(
        lever=str(found.get("lever", "")),
        to=str(found.get("to", "")),
        why=str(found.get("why", "")),
        sessions_ratio=found.get("sessionsRatio"),
        step_ratio=found.get("stepRatio"),
    )
