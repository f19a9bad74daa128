"""The error rates are what they are said to be, for populations that would fool a normal approximation, and the power is enough."""

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.gate.sequential import bounds, is_above, is_below, log_capital

ALPHA = 0.05
TRIALS = 2000
MARGIN = 0.015
"""Three standard errors of a rate of 0.05 over 2000 trials."""
LOSS_BAR = 0.03

# Losses by prompt whose mean is exactly the bar, so that saying "below" is an error, and so is saying "above".
AT_THE_BAR = {
    "two prompts are lost": [0.72] * 2 + [0.0] * 46,
    "all alike": [0.03] * 48,
    "half": [0.06] * 24 + [0.0] * 24,
    "one prompt is lost of many": [0.0] * 9 + [0.3],
    "in steps": [0.02, 0.04] * 24,
    "a long tail": [0.96, 0.24, 0.12, 0.06, 0.06] + [0.0] * 43,
}


def rate_of_error(population: Sequence[float], sign: int, drawn: int | None) -> float:
    """How often the test says that the mean is on one side of the bar, looking after every prompt."""
    low, high = sorted((-sign * LOSS_BAR, sign * (1 - LOSS_BAR)))
    draw = random.Random(7)
    wrong = 0
    for _ in range(TRIALS):
        order = draw.sample(population, len(population)) if drawn is None else draw.choices(population, k=drawn)
        terms = [sign * (loss - LOSS_BAR) for loss in order]
        wrong += log_capital(terms, low, high, len(population) if drawn is None else None) >= -math.log(ALPHA)
    return wrong / TRIALS


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", AT_THE_BAR)
def test_at_the_bar_an_early_verdict_is_wrong_at_most_at_its_rate(name: str, sign: int) -> None:
    assert math.fsum(AT_THE_BAR[name]) / len(AT_THE_BAR[name]) == pytest.approx(LOSS_BAR)
    assert rate_of_error(AT_THE_BAR[name], sign, None) <= ALPHA + MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", AT_THE_BAR)
def test_so_does_one_over_a_sample_of_endlessly_many(name: str, sign: int) -> None:
    assert rate_of_error(AT_THE_BAR[name], sign, 200) <= ALPHA + MARGIN


def test_the_rates_are_not_kept_by_never_deciding() -> None:
    """And an error rate above its bound would be seen: with half the variance assumed away the tail is found at once."""
    losses = [0.1, 0.0] * 24
    terms = [loss - LOSS_BAR for loss in losses]
    assert log_capital(terms, -LOSS_BAR, 1 - LOSS_BAR, 48) >= -math.log(ALPHA), "0.05 is above 0.03"
    assert log_capital([-term for term in terms], LOSS_BAR - 1, LOSS_BAR, 48) == 0.0
    shorter = [0.0] * 45
    assert log_capital([LOSS_BAR - x for x in shorter], LOSS_BAR - 1, LOSS_BAR, 48) >= -math.log(ALPHA), (
        "before the end"
    )


@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=40))
def test_the_whole_population_leaves_no_doubt(terms: list[float]) -> None:
    found = log_capital(terms, -0.5, 0.5, len(terms))
    mean = math.fsum(terms) / len(terms)
    if mean > 1e-6:
        assert found == math.inf
    if mean < -1e-6:
        assert found < math.inf


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.01, 0.99), st.integers(0, 20))
def test_capital_only_grows_and_is_never_ruined(values: list[float], bar: float, left: int) -> None:
    terms = [value - bar for value in values]
    for population in (None, len(values) + left):
        found = [log_capital(terms[:seen], -bar, 1 - bar, population) for seen in range(len(terms) + 1)]
        assert found[0] == 0.0
        assert all(one <= other for one, other in pairwise(found))
        assert not any(math.isnan(one) for one in found)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_bounds_hold_the_value_and_the_ends(values: list[float]) -> None:
    mean = math.fsum(values) / len(values)

    def terms(at: float) -> tuple[list[float], float, float]:
        return [value - at for value in values], -at, 1 - at

    low, high = bounds(mean, (0.0, 1.0), terms, (ALPHA, ALPHA), None)
    assert 0 <= low <= mean <= high <= 1
    assert low == 0 or is_above(low, terms, ALPHA, None)
    assert high == 1 or is_below(high, terms, ALPHA, None)
