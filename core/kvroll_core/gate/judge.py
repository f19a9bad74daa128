"""Where a metric stands against its bar, after so many prompts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvroll_core.gate.bar import Bar, GateVerdict, Metric
from kvroll_core.gate.estimate import KIND_OF, Pair, range_of, standard_error, terms_at, value_of
from kvroll_core.gate.evidence import GateFigure, known
from kvroll_core.gate.noise import noise_of
from kvroll_core.gate.question import QuestionKind
from kvroll_core.gate.sequential import bounds, is_above, is_below


@dataclass(frozen=True)
class Seen:
    """The pairs of one kind so far, in the order of their draw, and of baseline and control; `least` is needed to decide early."""

    pairs: Sequence[Pair]
    controls: Sequence[Pair]
    population: int
    least: int
    most: int
    as_sample: bool

    @property
    def exact(self) -> bool:
        """Whether this is all there is, so that the figures are no estimates."""
        return not self.as_sample and len(self.pairs) == self.population

    @property
    def drawn_from(self) -> int | None:
        """As `sequential` counts it."""
        return None if self.as_sample else self.population


@dataclass(frozen=True)
class Errors:
    """Of one bar: how often it may be met in error, and missed in error."""

    met: float
    missed: float


def standing(bar: Bar, seen: Seen, errors: Errors) -> tuple[GateVerdict, str] | None:
    """The bar's verdict and why; None while more prompts may tell."""
    value = value_of(bar.metric, seen.pairs)
    if seen.exact:
        if math.isnan(value):
            return (
                GateVerdict.INCONCLUSIVE,
                f"{bar}: the baseline itself gets nothing right, so there is no ratio to it",
            )
        if bar.met_by(value):
            return GateVerdict.PASS, f"{bar}: {value:.5g} over the whole dataset"
        return _failed(bar, seen, errors, f"{bar}: {value:.5g} over the whole dataset", is_last=True)
    is_last = len(seen.pairs) >= seen.most
    if len(seen.pairs) >= seen.least:
        above, below = _known_sides(bar, seen, errors)
        reason = f"{bar}: {value:.5g} after {len(seen.pairs)} of {seen.population}"
        if below if bar.is_floor else above:
            return _failed(bar, seen, errors, reason, is_last=is_last)
        if above if bar.is_floor else below:
            return GateVerdict.PASS, reason
    if is_last:
        return (
            GateVerdict.INCONCLUSIVE,
            f"{bar}: {value:.5g} after {len(seen.pairs)}, the most that was allowed, which is too near to tell",
        )
    return None


def figure(metric: Metric, bar: Bar | None, seen: Seen, errors: Errors) -> GateFigure:
    """The metric as evidence; a bar that nothing decided yet is Inconclusive."""
    value = value_of(metric, seen.pairs)
    if bar is None:
        verdict, reason = GateVerdict.NOT_RUN, "no bar"
    else:
        verdict, reason = standing(bar, seen, errors) or (
            GateVerdict.INCONCLUSIVE,
            f"{bar}: undecided when the trial ended",
        )
    low, high = _interval(metric, bar, value, seen, errors)
    control = value_of(metric, seen.controls)
    return GateFigure(
        metric, known(value), low, high, bar, verdict, reason, len(seen.pairs), seen.population,
        known(standard_error(metric, seen.pairs)), known(control), len(seen.controls),
    )  # fmt: skip


def _failed(bar: Bar, seen: Seen, errors: Errors, reason: str, *, is_last: bool) -> tuple[GateVerdict, str] | None:
    """A miss that the baseline's own noise may explain is no Fail: none yet while more prompts may tell, Inconclusive at the end."""
    noise = noise_of(bar, seen.pairs, seen.controls, errors.missed)
    if noise is None:
        return GateVerdict.FAIL, reason
    value = value_of(bar.metric, seen.pairs)
    worse_by = noise.value - value if bar.is_floor else value - noise.value
    if bar.met_by(noise.value) and worse_by > noise.explained:
        return GateVerdict.FAIL, reason
    if not is_last and bar.met_by(noise.best):
        return None
    told = f"{reason}, but the baseline against itself has {noise.value:.5g}"
    if not bar.met_by(noise.value):
        return GateVerdict.INCONCLUSIVE, f"{told}: the bar is within its noise"
    return GateVerdict.INCONCLUSIVE, f"{told}, and may have {noise.worst:.5g}: the candidate is within its noise"


def _known_sides(bar: Bar, seen: Seen, errors: Errors) -> tuple[bool, bool]:
    low, high = _sides(bar, errors)
    terms = _terms(bar.metric, seen.pairs)
    return (
        is_above(bar.limit, terms, low, seen.drawn_from),
        is_below(bar.limit, terms, high, seen.drawn_from),
    )


def _sides(bar: Bar | None, errors: Errors) -> tuple[float, float]:
    """The error of the lower and of the upper bound: which of the two meets the bar depends on its sign."""
    return (errors.missed, errors.met) if bar is not None and not bar.is_floor else (errors.met, errors.missed)


def _interval(
    metric: Metric, bar: Bar | None, value: float, seen: Seen, errors: Errors
) -> tuple[float | None, float | None]:
    if math.isnan(value):
        return None, None
    if seen.exact:
        return value, value
    ends = range_of(metric)
    low, high = bounds(value, ends, _terms(metric, seen.pairs), _sides(bar, errors), seen.drawn_from)
    is_ratio = KIND_OF[metric] is not QuestionKind.TEXT or metric is Metric.PPL_RATIO
    return low, None if is_ratio and high >= ends[1] else high


def _terms(metric: Metric, pairs: Sequence[Pair]) -> Callable[[float], tuple[Sequence[float], float, float]]:
    return lambda value: terms_at(metric, pairs, value)
