"""How sure one may be of a mean while its terms still arrive: bets against it, whose winnings are the evidence.

The capital process of Waudby-Smith and Ramdas ("Estimating means of bounded random variables by betting", JRSS-B 2024, arXiv:2010.09686,
§4 and, for draws without replacement, §5; the bets are their aGRAPA, §B.3). If the mean of the population is at most 0, the capital is a
nonnegative supermartingale that begins at 1, so by Ville's inequality it reaches 1/alpha with a probability of at most alpha, however often
one looks. Nothing is assumed of the terms but their bounds; the error rates are no approximation.
"""

import math
from collections.abc import Callable, Sequence

_SHARE = 0.9
"""Of the largest bet that cannot ruin: less loses speed, 1 could lose everything at one term."""
_SLACK = 1e-9
_HALVINGS = 48


def log_capital(terms: Sequence[float], low: float, high: float, population: int | None) -> float:
    """Natural log of the most that bets against "the mean is at most 0" have held so far, the terms in the order of their draw.

    Each term is a cluster's mean between `low` (below 0) and `high` (above it), drawn at random without replacement from `population`
    clusters, or from endlessly many where that is None. Infinite once what is left cannot bring the mean down to 0.
    """
    capital = best = total = squares = 0.0
    prior = -low * high / 4
    for drawn, term in enumerate(terms):
        expected = -total / (population - drawn) if population is not None else 0.0
        if expected < low - _SLACK:
            return math.inf
        mean = total / (drawn + 1)
        edge = mean - expected
        variance = (prior + max(squares - drawn * mean * mean, 0.0)) / (drawn + 1)
        room = expected - low
        spread = variance + edge * edge
        bet = min(edge / spread if spread else math.inf, _SHARE / room) if edge > 0 and room > _SLACK else 0.0
        capital += math.log1p(bet * (term - expected))
        best = max(best, capital)
        total += term
        squares += term * term
    if population is not None and total + (population - len(terms)) * low > _SLACK * population:
        return math.inf
    return best


Terms = Callable[[float], tuple[Sequence[float], float, float]]
"""For a value: the terms whose mean is above 0 where the metric is above that value, and their bounds."""


def is_above(value: float, terms: Terms, alpha: float, population: int | None) -> bool:
    """Whether the metric is known to be above that value."""
    return log_capital(*terms(value), population) >= -math.log(alpha)


def is_below(value: float, terms: Terms, alpha: float, population: int | None) -> bool:
    """Whether the metric is known to be below that value."""
    found, low, high = terms(value)
    return log_capital([-term for term in found], -high, -low, population) >= -math.log(alpha)


def bounds(
    at: float, ends: tuple[float, float], terms: Terms, errors: tuple[float, float], population: int | None
) -> tuple[float, float]:
    """What the metric is known to be above and below of, by halving between its own value `at` and the ends of its range.

    `errors` are those of the lower and of the upper bound. A decision asks `is_above` and `is_below` of its bar itself: these two are to be
    read.
    """
    low = _edge(ends[0], at, lambda value: is_above(value, terms, errors[0], population))
    high = _edge(ends[1], at, lambda value: is_below(value, terms, errors[1], population))
    return low, high


def _edge(end: float, at: float, excluded: Callable[[float], bool]) -> float:
    """The value nearest to `at` that is excluded; `end`, if not even that is."""
    for _ in range(_HALVINGS):
        middle = (end + at) / 2
        if not excluded(middle):
            at = middle
        else:
            end = middle
    return end
