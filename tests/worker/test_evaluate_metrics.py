"""The metrics of a comparison, against sums written out and against what must hold of any two distributions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroll_worker.evaluate.metrics import (
    Logprobs,
    MetricBar,
    NotComparableError,
    compare,
    divergences,
    log_softmax,
    missed,
)


def logprobs(*rows: list[float]) -> Logprobs:
    return np.log(np.array(rows, dtype=np.float64)).astype(np.float32)


def drawn(seed: int, positions: int, vocab: int, spread: float) -> Logprobs:
    return log_softmax((np.random.default_rng(seed).normal(size=(positions, vocab)) * spread).astype(np.float32))


def test_the_sums_are_those_of_the_definitions() -> None:
    base, found = logprobs([0.5, 0.5], [0.9, 0.1]), logprobs([0.25, 0.75], [0.9, 0.1])
    result = compare(base, found, [0, 0])
    first = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert result.positions == 2
    assert result.top1_agreement == 0.5, "of equal likeliest tokens the first counts"
    assert result.kl_mean == pytest.approx(first / 2, rel=1e-5)
    assert result.kl_p99 == pytest.approx(0.99 * first, rel=1e-5)
    assert result.perplexity == pytest.approx((0.25 * 0.9) ** -0.5, rel=1e-5)
    assert result.ppl_delta == pytest.approx((0.5 / 0.25) ** 0.5 - 1, rel=1e-5)


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 20), st.integers(2, 40), st.floats(0.0, 2.0))
def test_a_run_agrees_with_itself_and_divergence_is_never_negative(
    seed: int, positions: int, vocab: int, spread: float
) -> None:
    base, other = drawn(seed, positions, vocab, spread), drawn(seed + 1, positions, vocab, spread)
    targets = np.random.default_rng(seed).integers(0, vocab, positions).tolist()
    same = compare(base, base, targets)
    assert (same.top1_agreement, same.kl_mean, same.kl_p99, same.ppl_delta) == (1.0, 0.0, 0.0, 0.0)
    assert divergences(base, other).min() >= 0
    there, back = compare(base, other, targets), compare(other, base, targets)
    assert there.top1_agreement == back.top1_agreement
    assert (1 + there.ppl_delta) * (1 + back.ppl_delta) == pytest.approx(1.0, rel=1e-4)


@settings(deadline=None)
@given(st.integers(0, 2**31), st.floats(-50.0, 50.0))
def test_a_shift_of_all_logits_changes_nothing(seed: int, shift: float) -> None:
    logits = np.random.default_rng(seed).normal(size=(3, 50)).astype(np.float32)
    assert np.allclose(log_softmax(logits), log_softmax(logits + np.float32(shift)), atol=1e-4)
    assert np.allclose(np.exp(log_softmax(logits)).sum(axis=-1), 1.0, atol=1e-5)


def test_what_cannot_be_compared_is_refused() -> None:
    base = logprobs([0.5, 0.5], [0.5, 0.5])
    for found, targets in ((base[:1], [0, 0]), (base, [0]), (base[:, :1], [0, 0])):
        with pytest.raises(NotComparableError, match="expected two runs of one text"):
            compare(base, found, targets)
    with pytest.raises(NotComparableError, match="expected two runs of one text"):
        compare(base[:0], base[:0], [])
    broken = base.copy()
    broken[1, 0] = np.nan
    with pytest.raises(NotComparableError, match="candidate gave numbers that are not finite at 1 of 2 positions"):
        compare(base, broken, [0, 0])
    with pytest.raises(NotComparableError, match="the base gave"):
        compare(broken, base, [0, 0])


def test_a_bar_is_missed_below_above_and_where_nothing_is_known() -> None:
    bars = [MetricBar("top1_agreement", least=0.98), MetricBar("kl_p99", most=0.1)]
    assert missed({"top1_agreement": 0.98, "kl_p99": 0.1}, bars) == []
    assert missed({"top1_agreement": 0.9, "kl_p99": 0.2}, bars) == [
        "top1_agreement: expected at least 0.98, found 0.9",
        "kl_p99: expected at most 0.1, found 0.2",
    ]
    assert len(missed({"top1_agreement": math.nan}, bars)) == 2
    assert missed({"x": 3.0}, [MetricBar("x", 1, 2)]) == ["x: expected 1 to 2, found 3"]
