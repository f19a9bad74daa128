"""What a text's tokens cost, and what the model would rather have said. Pure; the engine calls `take` with one row at a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kvroll_worker.engine.step.sampler import Row, top_logprobs
from kvroll_worker.evaluate.metrics import NotComparableError


@dataclass(frozen=True)
class TokenScore:
    """Log-probability (nats) of one token after those before it, and the likeliest ones in its place, the likeliest first."""

    token_id: int
    logprob: float
    likeliest: tuple[tuple[int, float], ...]


@dataclass
class Scoring:
    """The ids of a text, of which those from `first` on (at least 1) are scored, each with its `top_k` likeliest."""

    token_ids: Sequence[int]
    first: int
    top_k: int
    _tokens: dict[int, TokenScore] = field(default_factory=dict)
    _greedy: dict[int, bool] = field(default_factory=dict)

    @property
    def positions(self) -> range:
        """Whose rows are wanted: each predicts the id behind it."""
        return range(self.first - 1, len(self.token_ids) - 1)

    def take(self, position: int, row: Row) -> None:
        """The row at a position; one that comes twice counts once."""
        token_id = self.token_ids[position + 1]
        if not np.isfinite(row).all():
            self._tokens[position], self._greedy[position] = TokenScore(token_id, math.nan, ()), False
            return
        own, *likeliest = top_logprobs(row, token_id, max(self.top_k, 1))
        self._tokens[position] = TokenScore(token_id, own[1], tuple(likeliest[: self.top_k]))
        self._greedy[position] = likeliest[0][0] == token_id

    def scores(self) -> list[TokenScore]:
        """One a scored token.

        Raises:
            NotComparableError: the model gave numbers that are no numbers; nothing may pass by them.
        """
        found = [self._tokens[position] for position in self.positions]
        bad = sum(not math.isfinite(one.logprob) for one in found)
        if bad:
            raise NotComparableError(f"the model gave numbers that are not finite for {bad} of {len(found)} tokens")
        return found

    @property
    def is_greedy(self) -> bool:
        """Whether greedy decoding would have written the scored tokens."""
        return all(self._greedy[position] for position in self.positions)
