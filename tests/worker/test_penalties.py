"""Penalties, bias and min_tokens: against the formulas written out, and against their own history told in pieces."""

import numpy as np
import pytest
import torch

from kvroll_worker.engine.step.penalties import TokenCounts, adjusted
from kvroll_worker.request import Sampling

ROW = np.array([1.5, -2.0, 0.5, 3.0, -1.0, 0.25], dtype=np.float32)
PROMPT, OUTPUTS = [0, 1, 1], [3, 3, 4, 3]


def changed(forbidden: tuple[int, ...] = (), **parameters: object) -> list[float]:
    sampling = Sampling(**parameters)  # type: ignore[arg-type]
    row = adjusted(ROW, sampling, forbidden, TokenCounts(PROMPT, OUTPUTS))
    assert ROW.tolist() == [1.5, -2.0, 0.5, 3.0, -1.0, 0.25]
    found: list[float] = row.tolist()
    return found


def test_repetition_is_over_prompt_and_outputs() -> None:
    assert changed(repetition_penalty=2.0) == [0.75, -4.0, 0.5, 1.5, -2.0, 0.25]


@pytest.mark.slow
def test_repetition_is_that_of_transformers() -> None:
    from transformers import RepetitionPenaltyLogitsProcessor  # takes seconds

    processor = RepetitionPenaltyLogitsProcessor(penalty=1.3)
    ids = torch.tensor([PROMPT + OUTPUTS])
    expected = processor(ids, torch.from_numpy(ROW.copy())[None])[0]
    assert changed(repetition_penalty=1.3) == pytest.approx(expected.tolist(), abs=1e-6)


def test_presence_and_frequency_are_over_outputs_alone() -> None:
    assert changed(presence_penalty=0.5) == [1.5, -2.0, 0.5, 2.5, -1.5, 0.25]
    assert changed(frequency_penalty=0.5) == [1.5, -2.0, 0.5, 1.5, -1.5, 0.25]
    assert changed(frequency_penalty=-0.5, presence_penalty=1.0) == [1.5, -2.0, 0.5, 3.5, -1.5, 0.25]


def test_bias_comes_before_penalties_and_cannot_lift_what_is_forbidden() -> None:
    assert changed(logit_bias=((3, -5.0),), repetition_penalty=2.0)[3] == -4.0
    assert changed((3, 4000), logit_bias=((3, 100.0),))[3] == -np.inf


def test_a_row_that_nothing_applies_to_is_not_copied() -> None:
    assert adjusted(ROW, Sampling(), (), None) is ROW


def test_counts_told_one_by_one_are_counts_told_at_once() -> None:
    grown = TokenCounts(PROMPT, OUTPUTS[:1])
    for token_id in OUTPUTS[1:]:
        grown.add(token_id)
    sampling = Sampling(repetition_penalty=1.7, presence_penalty=0.3, frequency_penalty=0.7)
    assert (adjusted(ROW, sampling, (), grown) == adjusted(ROW, sampling, (), TokenCounts(PROMPT, OUTPUTS))).all()
