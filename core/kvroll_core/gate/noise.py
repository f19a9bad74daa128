"""What the baseline's own noise says of a bar that a candidate misses: the baseline against itself, over a few prompts.

The rates of a verdict are those of `sequential`; this is an approximation beside them, measured by `bench/gate_errors.py`. It keeps a
candidate that is no worse than the baseline from failing because the few prompts of the control happened to agree.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from kvroll_core.gate.bar import Bar, Metric
from kvroll_core.gate.estimate import KIND_OF, Pair, standard_error, value_of
from kvroll_core.gate.question import QuestionKind


@dataclass(frozen=True)
class Noise:
    """The metric of the baseline against itself; `worst` and `best` are what it may be in truth. A candidate whose figure is further
    from `value` than `explained`, on the worse side, is worse than the baseline.
    """

    value: float
    worst: float
    best: float
    explained: float


def noise_of(bar: Bar, pairs: Sequence[Pair], controls: Sequence[Pair], error: float) -> Noise | None:
    """Each end but for `error`, however often one looks; None where nothing was asked twice.

    Between prompts by Student's t; of agreement, which shows nothing of a rare flip in a few prompts, also over positions by Wilson's
    score ("Probable inference", JASA 1927), whichever reaches further. Looks within one doubling of the control count as one. Of needles
    and tasks, and of `klP99`, the value alone.
    """
    if not controls:
        return None
    value = value_of(bar.metric, controls)
    spreads = [standard_error(bar.metric, found) for found in (controls, pairs)]
    if KIND_OF[bar.metric] is not QuestionKind.TEXT or any(map(math.isnan, spreads)):
        return Noise(value, value, value, 0.0)
    share = error / (1 + math.log2(len(controls)))
    reach = [_student(share, len(f) - 1) * spread for f, spread in zip((controls, pairs), spreads, strict=True)]
    low, high = value - reach[0], value + reach[0]
    if bar.metric is Metric.TOP1_AGREEMENT:
        wilson = _wilson(value, sum(len(pair.kls) for pair in controls), share)
        low, high = min(low, wilson[0]), max(high, wilson[1])
    worst, best = (low, high) if bar.is_floor else (high, low)
    return Noise(value, worst, best, math.hypot(value - worst, reach[1]))


def _student(error: float, freedom: int) -> float:
    """Student's upper quantile, by three terms of its expansion around the normal one (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(1 - error)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _wilson(share: float, count: int, error: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(1 - error)
    middle = share + z * z / (2 * count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (middle - reach) / (1 + z * z / count), (middle + reach) / (1 + z * z / count)
