"""How often the gate's judge is wrong where the truth is known: trials resampled from a candidate's scores of a whole dataset.

`dataset`: the prompts in another random order each trial; what is judged is the dataset, and its figure is the truth. `sample`: prompts
drawn with replacement, each trial another sample of the same endless population, whose figure is the truth too. A bar is put so many
points below the truth, where Fail is the error, and above it, where Pass is.

`noise` draws, for each prompt of each trial, at which positions an arm likes a token that it else would not: batches and kernels of a
baseline that is not deterministic. Control and candidate draw by themselves.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any
from unittest import mock

from kvroll_core.gate import Answer, Arm, Ask, Bar, Dataset, GateVerdict, Metric, Score, Text, Trial, TrialPolicy
from kvroll_core.gate import trial as trial_module
from kvroll_core.gate.estimate import Pair, compare
from kvroll_core.gate.question import Question, QuestionKind

DATASET, SAMPLE = "dataset", "sample"
FALSE_ACCEPT, FALSE_REJECT = "false accept", "false reject"
SAMPLED_PROMPTS = 240
_VERSIONS = 24
_ANOTHER_TOKEN = -1
"""An id that no vocabulary has: what a noisy arm likes best is never what the baseline likes."""
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Population:
    """What the arms answer to each text; several versions where an arm has noise, of which each trial draws one a prompt."""

    name: str
    texts: tuple[str, ...]
    base: Mapping[str, Answer]
    candidate: Mapping[str, tuple[Answer, ...]]
    control: Mapping[str, tuple[Answer, ...]]

    @classmethod
    def of(
        cls, name: str, texts: Sequence[str], base: Sequence[Answer], found: Sequence[Answer], noise: float = 0.0
    ) -> "Population":
        """Of one answer a text; with `noise`, the share of positions at which an arm likes another token than it else would."""
        known = {text: _short(answer) for text, answer in zip(texts, base, strict=True)}
        theirs = {text: _short(answer) for text, answer in zip(texts, found, strict=True)}
        return cls(name, tuple(texts), known, _noisy(theirs, noise, "candidate"), _noisy(known, noise, "control"))

    def truth(self, compared: "Comparisons") -> float:
        """Top-1 agreement of the candidate over all texts and versions."""
        return _mean([_mean([compared.agreement(t, self.base[t], a) for a in self.candidate[t]]) for t in self.texts])

    def noise_floor(self, compared: "Comparisons") -> float:
        """The same of the control."""
        return _mean([_mean([compared.agreement(t, self.base[t], a) for a in self.control[t]]) for t in self.texts])


class Comparisons:
    """`compare`, which asks each pair of answers once: thousands of trials hold the same few."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], Pair] = {}
        self._alive: list[Answer] = []

    def __call__(self, question: Question, base: Sequence[Answer], found: Sequence[Answer]) -> Pair:
        """As `compare` of one text."""
        assert isinstance(question.of, Text)
        key = question.of.text, id(base[0]), id(found[0])
        if key not in self._known:
            self._alive += [base[0], found[0]]  # an id names an answer only while it lives
            self._known[key] = compare(question, base, found)
        return self._known[key]

    def agreement(self, text: str, base: Answer, found: Answer) -> float:
        """Top-1 agreement of one text."""
        return self(Question("truth", QuestionKind.TEXT, Text(text)), [base], [found]).agreement


@dataclass(frozen=True)
class Row:
    """Trials at one bar. `over` DATASET or SAMPLE; `error` which verdict would be wrong; `margin` in points of 100."""

    over: str
    error: str
    bar: float
    margin: float
    trials: int


def rows(truth: float, margins: Sequence[float], over: Sequence[str], trials: int) -> list[Row]:
    """A row for each margin on each side of the truth, of those whose bar is a share."""
    found = []
    for one in over:
        for margin in margins:
            below, above = truth - margin / 100, truth + margin / 100
            found += [Row(one, FALSE_REJECT, below, margin, trials)] if below >= 0 else []
            found += [Row(one, FALSE_ACCEPT, above, margin, trials)] if above < 1 else []
    return found


def measured(population: Population, row: Row, compared: Comparisons) -> dict[str, Any]:
    """What became of its trials."""
    policy = TrialPolicy(as_sample=row.over == SAMPLE)
    wrong = GateVerdict.PASS if row.error == FALSE_ACCEPT else GateVerdict.FAIL
    promised = policy.alpha if row.error == FALSE_ACCEPT else policy.beta
    bar = Bar(Metric.TOP1_AGREEMENT, min=row.bar)
    found = [_trial(population, row, bar, policy, seed, compared) for seed in range(row.trials)]
    false = sum(verdict is wrong for verdict, _ in found)
    low, high = interval(false, row.trials)
    return {
        "candidate": population.name, "over": row.over, "error": row.error, "bar": round(row.bar, 6), "margin": row.margin,
        "trials": row.trials, "false": false, "false_rate": false / row.trials, "false_rate_low": round(low, 5),
        "false_rate_high": round(high, 5), "promised": promised, "holds": low <= promised,
        "undecided_rate": sum(verdict is GateVerdict.INCONCLUSIVE for verdict, _ in found) / row.trials,
        "mean_samples": round(_mean([samples for _, samples in found]), 1),
        "prompts": SAMPLED_PROMPTS if row.over == SAMPLE else len(population.texts),
    }  # fmt: skip


def _trial(
    population: Population, row: Row, bar: Bar, policy: TrialPolicy, seed: int, compared: Comparisons
) -> tuple[GateVerdict, int]:
    """The verdict of one whole trial by the product's own state machine, and prompts that it took."""
    chance = random.Random(f"{population.name} {row} {seed}")
    texts = population.texts if row.over == DATASET else chance.choices(population.texts, k=SAMPLED_PROMPTS)
    dataset = Dataset(tuple(map(Text, texts)), (), "resampled")
    trial = Trial(dataset, (bar,), policy, chance.randrange(2**32))
    answer: dict[Arm, Callable[[str], Answer]] = {
        Arm.BASELINE: lambda text: population.base[text],
        Arm.CANDIDATE: lambda text: chance.choice(population.candidate[text]),
        Arm.CONTROL: lambda text: chance.choice(population.control[text]),
    }
    with mock.patch.object(trial_module, "compare", compared):
        while (batch := trial.ask()) is not None:
            trial.take(batch.id, [answer[batch.arm](_text(ask)) for ask in batch.asks])
    assert trial.verdict is not None
    return trial.verdict, sum(seen for _, seen, _ in trial.progress())


def _text(ask: Ask) -> str:
    return ask.continuations[0]


def _short(answer: Answer) -> Answer:
    """The likeliest token of each position alone: all that agreement looks at."""
    return _changed(answer, lambda token: replace(token, likeliest=token.likeliest[:1]))


def _noisy(answers: Mapping[str, Answer], noise: float, arm: str) -> dict[str, tuple[Answer, ...]]:
    if not noise:
        return {text: (answer,) for text, answer in answers.items()}

    def version(text: str, answer: Answer, number: int) -> Answer:
        chance = random.Random(f"{arm} {number} {text}")

        def flipped(token: Any) -> Any:
            other = ((_ANOTHER_TOKEN, token.likeliest[0][1]),)
            return replace(token, likeliest=other) if chance.random() < noise else token

        return _changed(answer, flipped)

    return {text: tuple(version(text, answer, n) for n in range(_VERSIONS)) for text, answer in answers.items()}


def _changed(answer: Answer, change: Callable[[Any], Any]) -> Answer:
    return Answer(tuple(Score(tuple(map(change, one.tokens)), one.is_greedy) for one in answer.scores))


def interval(false: int, trials: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of a rate, at 95 %: exact, by halving on the binomial's tails."""
    tail = (1 - _CONFIDENCE) / 2

    def at_least(rate: float) -> float:
        return sum(comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(false, trials + 1))

    def at_most(rate: float) -> float:
        return sum(comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(false + 1))

    low = 0.0 if false == 0 else _root(lambda rate: at_least(rate) > tail)
    return low, 1.0 if false == trials else _root(lambda rate: at_most(rate) < tail)


def _root(beyond: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return (low + high) / 2


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
