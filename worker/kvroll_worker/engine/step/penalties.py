"""What changes a row of logits before a token is chosen; a function of the row, the parameters and the ids so far.

In vLLM's order: min_tokens and logit_bias, then repetition_penalty (over prompt and outputs, as in CTRL, Keskar et al. 2019), then
frequency_penalty and presence_penalty (over outputs alone, as OpenAI defines them).
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from kvroll_worker.request import Sampling

Row = npt.NDArray[np.float32]


class TokenCounts:
    """Which ids the prompt holds, and how often each stands in the outputs."""

    def __init__(self, prompt_ids: Sequence[int], output_ids: Iterable[int]) -> None:
        self._prompt = np.unique(np.asarray(prompt_ids, dtype=np.int64))
        self._outputs = Counter(output_ids)

    def add(self, token_id: int) -> None:
        """One more output."""
        self._outputs[token_id] += 1

    def outputs(self) -> tuple[npt.NDArray[np.int64], Row]:
        """The distinct ids of the outputs, and how often each stands there."""
        ids = np.fromiter(self._outputs.keys(), dtype=np.int64, count=len(self._outputs))
        return ids, np.fromiter(self._outputs.values(), dtype=np.float32, count=len(self._outputs))

    def seen(self) -> npt.NDArray[np.int64]:
        """The distinct ids of prompt and outputs."""
        return np.union1d(self._prompt, self.outputs()[0])


def adjusted(row: Row, sampling: Sampling, forbidden: Iterable[int], counts: TokenCounts | None) -> Row:
    """The logits to choose from: `row` itself if nothing applies, else a changed copy.

    Args:
        forbidden: ids that must not be chosen now.
        counts: needed where `sampling.counts_tokens`.
    """
    masked = [token_id for token_id in forbidden if token_id < row.size]
    if not (masked or sampling.logit_bias or sampling.counts_tokens):
        return row
    row = row.copy()
    row[masked] = -np.inf
    for token_id, bias in sampling.logit_bias:
        row[token_id] += np.float32(bias)
    if counts is not None and sampling.counts_tokens:
        _penalise(row, sampling, counts)
    return row


def _penalise(row: Row, sampling: Sampling, counts: TokenCounts) -> None:
    if sampling.repetition_penalty != 1:
        seen = counts.seen()
        values, penalty = row[seen], np.float32(sampling.repetition_penalty)
        row[seen] = np.where(values > 0, values / penalty, values * penalty)
    ids, times = counts.outputs()
    if ids.size and (sampling.frequency_penalty or sampling.presence_penalty):
        row[ids] -= np.float32(sampling.frequency_penalty) * times + np.float32(sampling.presence_penalty)
