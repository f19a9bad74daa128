"""The sampler: pure functions of a row, the parameters and the position."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_worker.engine.step.sampler import Row, gumbel_noise, sample, top_logprobs
from kvroll_worker.request import Sampling

ROW = np.log(np.array([0.05, 0.4, 0.1, 0.25, 0.2], dtype=np.float32))
GOLDEN = [1.575137658481384, 2.4020572035856667, -0.33943199267981294]


def frequencies(row: Row, parameters: dict[str, Any], count: int = 4000) -> list[float]:
    drawn = [sample(row, Sampling(seed=5, **parameters), position) for position in range(count)]
    return [drawn.count(i) / count for i in range(len(row))]


def test_greedy_takes_the_first_of_equals() -> None:
    assert sample(np.array([1, 3, 3], dtype=np.float32), Sampling(temperature=0), 0) == 1
    assert sample(ROW, Sampling(temperature=5, top_k=1), 0) == 1


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [0.05, 0.4, 0.1, 0.25, 0.2]),
        pytest.param({"temperature": 0.5}, [0.0025, 0.16, 0.01, 0.0625, 0.04], marks=pytest.mark.slow),
        pytest.param({"top_k": 2}, [0, 0.4, 0, 0.25, 0], marks=pytest.mark.slow),
        pytest.param({"top_p": 0.6}, [0, 0.4, 0, 0.25, 0], marks=pytest.mark.slow),
        ({"top_p": 0.7}, [0, 0.4, 0, 0.25, 0.2]),
        pytest.param({"min_p": 0.4}, [0, 0.4, 0, 0.25, 0.2], marks=pytest.mark.slow),
        ({"top_k": 3, "top_p": 0.7}, [0, 0.4, 0, 0.25, 0]),
        ({"top_k": 4, "min_p": 0.6}, [0, 0.4, 0, 0.25, 0]),
    ],
)
def test_tokens_come_as_often_as_they_should(parameters: dict[str, float], expected: list[float]) -> None:
    total = sum(expected)
    found = frequencies(ROW, parameters)
    for share, wanted in zip(found, (e / total for e in expected), strict=True):
        assert abs(share - wanted) < 4 * math.sqrt(max(wanted * (1 - wanted), 1e-9) / 4000) + 1e-9


def test_noise_is_gumbel_and_fixed_for_ever() -> None:
    noise = gumbel_noise(1, 2, np.arange(200_000))
    assert abs(noise.mean() - 0.5772) < 0.01
    assert abs(noise.var() - math.pi**2 / 6) < 0.03
    # Written down once: sessions move between versions only if these numbers never change.
    assert gumbel_noise(42, 7, np.array([0, 1, 49151])) == pytest.approx(GOLDEN, abs=1e-12)


def test_noise_depends_on_seed_position_and_token_but_not_on_which_are_asked() -> None:
    ids = np.arange(50)
    assert (gumbel_noise(3, 9, ids)[17:19] == gumbel_noise(3, 9, np.array([17, 18]))).all()
    for other in (gumbel_noise(4, 9, ids), gumbel_noise(3, 10, ids), gumbel_noise(3, 9, ids + 1)):
        assert abs(np.corrcoef(gumbel_noise(3, 9, ids), other)[0, 1]) < 0.5
        assert (gumbel_noise(3, 9, ids) != other).all()


@given(st.integers(0, 2**64 - 1), st.integers(0, 10_000), st.floats(0.1, 3))
def test_cutting_far_tokens_off_changes_no_draw(seed: int, position: int, temperature: float) -> None:
    row = np.linspace(-80, 0, 300, dtype=np.float32)
    with_all = row.astype(np.float64) / temperature + gumbel_noise(seed, position, np.arange(300))
    assert sample(row, Sampling(temperature=temperature, seed=seed), position) == int(np.argmax(with_all))


def test_a_nucleus_wider_than_the_first_guess() -> None:
    row = np.zeros(6000, dtype=np.float32)
    drawn = {sample(row, Sampling(top_p=0.9, seed=1), position) for position in range(400)}
    assert max(drawn) > 5000
    assert max(drawn) < 5400


def test_logprobs_are_of_the_unscaled_distribution_chosen_first() -> None:
    found = top_logprobs(ROW, 2, 2)
    assert [i for i, _ in found] == [2, 1, 3]
    assert [round(math.exp(value), 5) for _, value in found] == [0.1, 0.4, 0.25]
    [(token_id, value)] = top_logprobs(ROW, 4, 0)
    assert (token_id, round(math.exp(value), 5)) == (4, 0.2)
