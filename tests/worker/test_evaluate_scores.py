"""Scores of a text from rows of logits."""

import math

import numpy as np
import pytest

from kvroll_worker.evaluate.metrics import NotComparableError
from kvroll_worker.evaluate.scores import Scoring

ROW = np.log(np.array([0.5, 0.25, 0.125, 0.125], dtype=np.float32))


def test_each_position_is_scored_once_with_its_likeliest() -> None:
    scoring = Scoring([3, 0, 1], 1, 2)
    assert list(scoring.positions) == [0, 1]
    for position in (1, 0, 1):
        scoring.take(position, ROW)
    first, second = scoring.scores()
    assert first.token_id == 0
    assert first.logprob == pytest.approx(math.log(0.5))
    assert second.logprob == pytest.approx(math.log(0.25))
    assert [token_id for token_id, _ in second.likeliest] == [0, 1]
    assert not scoring.is_greedy


def test_greedy_is_known_without_reporting_any() -> None:
    scoring = Scoring([3, 0], 1, 0)
    scoring.take(0, ROW)
    assert scoring.is_greedy
    assert scoring.scores()[0].likeliest == ()


def test_equal_logits_are_taken_in_the_order_of_their_ids_as_the_sampler_takes_them() -> None:
    scoring = Scoring([9, 3], 1, 1)
    scoring.take(0, np.zeros(4, dtype=np.float32))
    assert not scoring.is_greedy
    assert scoring.scores()[0].likeliest[0][0] == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_that_are_no_numbers_score_nothing(bad: float) -> None:
    scoring = Scoring([3, 0, 1], 1, 2)
    scoring.take(0, ROW)
    scoring.take(1, np.array([bad, *ROW[1:]], dtype=np.float32))
    with pytest.raises(NotComparableError, match="for 1 of 2 tokens"):
        scoring.scores()
