"""The words of the gate: its metrics, a user's bar on one of them, and the verdicts."""

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class GateError(ValueError):
    """What the gate refuses to begin with; the message says what was expected, what was found and what to do."""


class GateVerdict(StrEnum):
    """Pass and Fail hold within the stated error rates; Inconclusive is neither, and never quietly one of them."""

    PASS = "Pass"
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"
    NOT_RUN = "NotRun"


class Metric(StrEnum):
    """What a bar may be on. KL in nats; the last three are ratios, the candidate's figure to the baseline's."""

    TOP1_AGREEMENT = "top1Agreement"
    KL_MEAN = "klMean"
    KL_P99 = "klP99"
    PPL_RATIO = "pplRatio"
    NEEDLE_RECALL = "needleRecall"
    TASK_SCORE = "taskScore"


_SPELT = re.compile(r"\s*(?P<name>\w+)\s*(?P<sign>>=|<=)\s*(?P<value>[-+.\deE]+)\s*")
_SLACK = 1e-9
"""A value that meets its bar but for rounding meets it: 0.97 is not a sum of binary fractions."""


@dataclass(frozen=True)
class Bar:
    """A metric's value must be at least `min`, or at most `max`; a value that equals its bar meets it.

    Raises:
        GateError: an unknown metric, not exactly one end, or one that is no finite number.
    """

    metric: Metric
    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        known = [metric.value for metric in Metric]
        if self.metric not in known:
            raise GateError(f"expected a metric of {', '.join(known)}, found {self.metric!r}")
        object.__setattr__(self, "metric", Metric(self.metric))
        if (self.min is None) == (self.max is None):
            raise GateError(
                f"{self.metric}: expected either min or max, found {'both' if self.min is not None else 'none'}"
            )
        if not math.isfinite(self.limit):
            raise GateError(f"{self.metric}: expected a finite number, found {self.limit}")

    @classmethod
    def parse(cls, text: str) -> "Bar":
        """`top1Agreement>=0.97` or `klP99<=0.1`.

        Raises:
            GateError: it is not spelt so.
        """
        found = _SPELT.fullmatch(text)
        if found is None:
            raise GateError(f"expected a bar such as top1Agreement>=0.97 or klP99<=0.1, found {text!r}")
        try:
            value = float(found["value"])
        except ValueError as error:
            raise GateError(f"expected a number behind {found['sign']}, found {found['value']!r}") from error
        end = {"min": value} if found["sign"] == ">=" else {"max": value}
        return cls(Metric(found["name"]) if found["name"] in set(Metric) else found["name"], **end)  # type: ignore[arg-type]

    @property
    def limit(self) -> float:
        """The one end that is given."""
        return float(self.max if self.min is None else self.min)  # type: ignore[arg-type]

    @property
    def is_floor(self) -> bool:
        """Whether more is better."""
        return self.min is not None

    def met_by(self, value: float) -> bool:
        """Whether a figure that is known exactly meets it; NaN meets nothing."""
        return value >= self.limit - _SLACK if self.is_floor else value <= self.limit + _SLACK

    def to_json(self) -> dict[str, Any]:
        """As the CRD's `gate.metrics[]` spells it."""
        return {"name": self.metric.value, "min" if self.is_floor else "max": self.limit}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Bar":
        """Of `to_json`'s shape. Raises GateError as the constructor does."""
        return cls(found["name"], found.get("min"), found.get("max"))

    def __str__(self) -> str:
        return f"{self.metric} {'>=' if self.is_floor else '<='} {self.limit:g}"
