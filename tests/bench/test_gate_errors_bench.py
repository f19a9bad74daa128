"""The measurement of the gate's error rates: its truth, its rows, its interval, and that a judge that errs would be seen."""

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import gate_errors as bench
import pytest

from kvroll_bench import gate_scores
from kvroll_bench.error_rates import (
    DATASET,
    FALSE_ACCEPT,
    FALSE_REJECT,
    SAMPLE,
    Comparisons,
    Population,
    Row,
    interval,
    measured,
    rows,
)
from kvroll_core.gate import Answer, Score, ScoredToken, bundled, judge

TEXTS = [f"text {number}" for number in range(24)]


def answer(flipped: int, of: int = 20) -> Answer:
    """`flipped` of the positions like another token."""
    tokens = (ScoredToken(1, -1.0, ((2 if at < flipped else 1, -0.5), (3, -1.0))) for at in range(of))
    return Answer((Score(tuple(tokens), False),))


def population(flips: Sequence[int], noise: float = 0.0) -> Population:
    return Population.of("made", TEXTS, [answer(0) for _ in TEXTS], [answer(one) for one in flips], noise)


UNEVEN = [0, 0, 1, 2, 0, 5] * 4
"""A sixth of 20 positions is lost on average: 8/120."""


def test_the_truth_is_the_figure_of_the_whole_dataset() -> None:
    assert population(UNEVEN).truth(Comparisons()) == pytest.approx(1 - 8 / 120)
    noisy = population([0] * 24, 0.1)
    assert noisy.truth(Comparisons()) == pytest.approx(0.9, abs=0.01)
    assert noisy.noise_floor(Comparisons()) == pytest.approx(0.9, abs=0.01)
    assert noisy.truth(Comparisons()) != noisy.noise_floor(Comparisons())


def test_a_bar_stands_on_each_side_of_the_truth_where_it_can() -> None:
    found = rows(0.985, (1.0, 2.0), (DATASET,), 200)
    assert [(one.error, round(one.bar, 3)) for one in found] == [
        (FALSE_REJECT, 0.975),
        (FALSE_ACCEPT, 0.995),
        (FALSE_REJECT, 0.965),
    ]


@pytest.mark.parametrize("over", [DATASET, SAMPLE])
def test_far_from_the_truth_the_judge_is_right_and_early(over: str) -> None:
    made, compared = population(UNEVEN), Comparisons()
    found = measured(made, Row(over, FALSE_ACCEPT, 0.999, 6.6, 30), compared)
    assert (found["false_rate"], found["holds"]) == (0.0, True)
    assert found["trials"] == 30
    assert found["prompts"] == (24 if over == DATASET else 240)


def test_the_order_of_the_prompts_is_what_differs_between_trials() -> None:
    found = measured(population(UNEVEN), Row(DATASET, FALSE_ACCEPT, 0.99, 5.7, 20), Comparisons())
    assert 8 <= found["mean_samples"] <= 24
    assert found["mean_samples"] != int(found["mean_samples"]) or found["mean_samples"] not in (8, 24)


def test_a_judge_that_errs_is_seen() -> None:
    with (
        mock.patch.object(judge, "is_above", return_value=True),
        mock.patch.object(judge, "is_below", return_value=False),
    ):
        found = measured(population(UNEVEN), Row(DATASET, FALSE_ACCEPT, 0.99, 5.7, 20), Comparisons())
    assert (found["false_rate"], found["holds"]) == (1.0, False)


@pytest.mark.parametrize(
    ("false", "trials", "low", "high"), [(0, 200, 0.0, 0.0183), (10, 200, 0.0242, 0.0900), (200, 200, 0.9817, 1.0)]
)
def test_the_interval_is_the_exact_one(false: int, trials: int, low: float, high: float) -> None:
    """The textbook's figures."""
    assert interval(false, trials) == pytest.approx((low, high), abs=5e-4)


def test_kept_scores_are_of_the_sources_that_made_them() -> None:
    assert all(Path(gate_scores._ROOT / folder).is_dir() for folder in gate_scores._MADE_BY)
    assert gate_scores._key(bundled()) == gate_scores._key(bundled())
    with mock.patch.object(gate_scores, "_MADE_BY", gate_scores._MADE_BY[:-1]):
        fewer = gate_scores._key(bundled())
    assert fewer != gate_scores._key(bundled())


def test_every_candidate_stands_at_both_kinds_of_bar() -> None:
    with mock.patch.object(
        bench, "population", side_effect=lambda name, noise: (population(UNEVEN, noise), Comparisons(), 0.96)
    ):
        asked = bench.planned(200)
    assert {name for name, _, _ in asked} == {"bf16", "int8", "kivi4", "fp8_e4m3", "mxfp8"}
    assert {row.error for _, _, row in asked} == {FALSE_REJECT, FALSE_ACCEPT}
    assert {row.margin for _, _, row in asked} >= {0.2, 0.5, 1.0, 2.0, 3.0}
    assert all(row.trials >= 200 for _, _, row in asked)
    assert any(noise for _, noise, _ in asked)
