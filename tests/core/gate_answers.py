"""A model that is two random numbers: how often it likes another token than the baseline does, and what it gets right."""

import random
from dataclasses import dataclass

from kvroll_core.gate import Answer, Arm, Ask, Evidence, Score, ScoredToken, Trial


@dataclass(frozen=True)
class FakeModel:
    """`flips` is the share of positions where another token than usual is the likeliest, `misses` that of wrong words.

    `spread` makes texts differ: that share of them has all the flips.
    """

    flips: float = 0.0
    misses: float = 0.0
    seed: int = 0
    spread: float = 1.0

    def answer(self, ask: Ask) -> Answer:
        """Of words as tokens."""
        return Answer(tuple(self._score(ask, one) for one in ask.continuations))

    def _score(self, ask: Ask, continuation: str) -> Score:
        draw = random.Random(f"{self.seed} {ask.id} {continuation}")
        rate = self.flips / self.spread if draw.random() < self.spread else 0.0
        words = continuation.split()[:40]
        tokens = tuple(_token(word, draw.random() < rate) for word in words)
        return Score(tokens, draw.random() >= self.misses)


def _token(word: str, flipped: bool) -> ScoredToken:
    if flipped:
        return ScoredToken(word, -2.1, (("b", -0.8), ("a", -0.9)))
    return ScoredToken(word, -2.0, (("a", -0.5), ("b", -1.2)))


def judged(trial: Trial, candidate: FakeModel, control: FakeModel | None = None) -> Evidence:
    """The whole trial against a baseline that never flips and never misses."""
    arms = {Arm.BASELINE: FakeModel(), Arm.CANDIDATE: candidate, Arm.CONTROL: control or FakeModel()}
    while not trial.decided:
        batch = trial.ask()
        assert batch is not None, "undecided, and nothing to ask"
        trial.take(batch.id, [arms[batch.arm].answer(ask) for ask in batch.asks])
    return trial.evidence()
