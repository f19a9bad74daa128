"""What is asked of a model and what it answers: the shape of `kvroll.v1.ScoreRequest` and `Score`, without the wire."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

Token = int | str
"""An id; or its text, where a server tells only that."""


class Arm(StrEnum):
    """Who is asked. `control` is the baseline once more: what differs between the two is noise."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"
    CONTROL = "control"


@dataclass(frozen=True)
class ScoredToken:
    """Log-probability (nats) of a token after those before it, and the likeliest ones in its place, the likeliest first."""

    token: Token
    logprob: float
    likeliest: tuple[tuple[Token, float], ...] = ()


@dataclass(frozen=True)
class Score:
    """One continuation: its tokens, and whether greedy decoding would have written it."""

    tokens: tuple[ScoredToken, ...]
    is_greedy: bool

    @property
    def logprob_sum(self) -> float:
        """Nats."""
        return math.fsum(one.logprob for one in self.tokens)

    @cached_property
    def is_finite(self) -> bool:
        """Whether every number in it is one."""
        values = (value for one in self.tokens for value in (one.logprob, *(at for _, at in one.likeliest)))
        return all(math.isfinite(value) for value in values)


@dataclass(frozen=True)
class Ask:
    """Continuations of one prompt, each to be scored by itself; without a prompt, all but the first token of them.

    The text of a continuation follows the prompt's without a space of its own. `top_k` is how many likeliest tokens each position
    should come with.
    """

    id: str
    prompt: str | None
    continuations: tuple[str, ...]
    top_k: int


@dataclass(frozen=True)
class Answer:
    """One score a continuation, in their order."""

    scores: tuple[Score, ...]

    def to_json(self) -> list[Any]:
        """Nested lists, small enough to be kept: a score is [is_greedy, [[token, logprob, [[token, logprob], …]], …]]."""
        return [
            [one.is_greedy, [[t.token, t.logprob, [list(pair) for pair in t.likeliest]] for t in one.tokens]]
            for one in self.scores
        ]

    @classmethod
    def from_json(cls, found: Sequence[Any]) -> "Answer":
        """Of `to_json`'s shape."""
        return cls(
            tuple(
                Score(
                    tuple(
                        ScoredToken(token, logprob, tuple((t, p) for t, p in likeliest))
                        for token, logprob, likeliest in tokens
                    ),
                    is_greedy,
                )
                for is_greedy, tokens in found
            )
        )


@dataclass(frozen=True)
class Batch:
    """Asks for one arm, to be answered together by `Trial.take(batch.id, answers)`, in their order."""

    id: str
    arm: Arm
    asks: tuple[Ask, ...]
