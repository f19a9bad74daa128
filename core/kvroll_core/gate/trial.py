"""The gate's trial: who is asked what next, and when it is enough. A state machine without effects: a driver asks and answers."""

import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import count

from kvroll_core.gate.answer import Answer, Arm, Batch
from kvroll_core.gate.bar import Bar, GateError, GateVerdict, Metric
from kvroll_core.gate.dataset import Dataset
from kvroll_core.gate.distance import NotComparableError
from kvroll_core.gate.estimate import KIND_OF, Pair, compare
from kvroll_core.gate.evidence import Evidence, GateFigure, NeedleCount
from kvroll_core.gate.judge import Errors, Seen, figure, standing
from kvroll_core.gate.needles import Tale
from kvroll_core.gate.policy import TrialPolicy
from kvroll_core.gate.question import Question, QuestionKind, questions_of

ALL_ARMS = (Arm.BASELINE, Arm.CONTROL, Arm.CANDIDATE)


class Trial:
    """Baseline against candidate over a dataset in the random order of `seed`, until every bar is decided or one is failed.

    Batches, their ids and their questions follow from the four arguments alone: a driver that kept its answers can give them to a new
    trial of the same arguments and goes on from there.

    Raises:
        GateError: no bar, two alike, or one on what the dataset has none of.
    """

    def __init__(self, dataset: Dataset, bars: Sequence[Bar], policy: TrialPolicy | None = None, seed: int = 0) -> None:
        self._dataset, self._bars, self._seed = dataset, tuple(bars), seed
        self._policy = policy = policy or TrialPolicy()
        every = questions_of(dataset, policy, seed)
        _check(self._bars, every)
        self._population = {kind: len(found) for kind, found in every.items()}
        self._questions = {
            kind: random.Random(f"order {seed} {kind}").sample(found, len(found))[: policy.max_samples]
            for kind, found in every.items()
            if kind in {KIND_OF[bar.metric] for bar in self._bars}
        }
        self._errors = Errors(policy.alpha, policy.beta / len(self._bars))
        self._batches = {batch.id: batch for batch in self._planned()}
        self._asked: set[str] = set()
        self._answers: dict[str, Sequence[Answer]] = {}
        self._pairs: dict[QuestionKind, list[Pair]] = defaultdict(list)
        self._controls: dict[QuestionKind, list[Pair]] = defaultdict(list)
        self._rounds_done: dict[QuestionKind, int] = defaultdict(int)
        self._standings: dict[tuple[Bar, int], tuple[GateVerdict, str] | None] = {}
        self._ended: tuple[GateVerdict, str] | None = None

    def ask(self, arms: Collection[Arm] = ALL_ARMS) -> Batch | None:
        """The next batch; None when decided, or while answers are owed that may decide.

        Without the candidate among `arms` it does not wait for it: that is how a baseline is written down before its worker is drained.
        """
        if self._ended is not None:
            return None
        # Rounds that are compared have nothing left to ask.
        for number in count(min((self._rounds_done[kind] for kind in self._open_kinds()), default=0)):
            batches = [
                self._batches[name]
                for kind in self._open_kinds()
                for arm in ALL_ARMS
                if (name := _name(kind, number, arm)) in self._batches
            ]
            if not batches and not self._any_round(number):
                return None
            for batch in batches:
                if batch.arm in arms and batch.id not in self._asked:
                    self._asked.add(batch.id)
                    return batch
            if Arm.CANDIDATE in arms and any(batch.id not in self._answers for batch in batches):
                return None
        raise AssertionError("count() ends never")

    def take(self, batch_id: str, answers: Sequence[Answer]) -> None:
        """The answers of a batch, one an ask, in their order; a batch that is answered twice keeps its first answers.

        Raises:
            GateError: no such batch, or not as many answers as asks.
        """
        batch = self._batches.get(batch_id)
        if batch is None or len(answers) != len(batch.asks):
            wanted = "a batch of this trial" if batch is None else f"{len(batch.asks)} answers to {batch_id}"
            raise GateError(f"expected {wanted}, found {batch_id} with {len(answers)} answers")
        if batch_id in self._answers or self._ended is not None:
            return
        self._asked.add(batch_id)
        self._answers[batch_id] = answers
        if not all(score.is_finite for answer in answers for score in answer.scores):
            self.fault(batch.arm, "it gave numbers that are not finite")
            return
        try:
            self._compare()
        except NotComparableError as error:
            self.stop(str(error))
            return
        self._decide()

    def fault(self, arm: Arm, reason: str) -> None:
        """An arm's numbers are no numbers: the candidate fails by it; without a baseline nothing can be said."""
        if self._ended is None:
            verdict = GateVerdict.FAIL if arm is Arm.CANDIDATE else GateVerdict.INCONCLUSIVE
            self._ended = verdict, f"{arm}: {reason}"

    def stop(self, reason: str) -> None:
        """Ends the trial undecided: out of time, an arm is gone, the answers cannot be compared."""
        if self._ended is None:
            self._ended = GateVerdict.INCONCLUSIVE, reason

    @property
    def decided(self) -> bool:
        """Whether there is a verdict."""
        return self._ended is not None

    @property
    def verdict(self) -> GateVerdict | None:
        """It alone, without the evidence for it; None while there is none."""
        return None if self._ended is None else self._ended[0]

    def progress(self) -> list[tuple[str, int, int]]:
        """Of each kind asked: its name, prompts compared, and the most that may be."""
        return [(kind.value, len(self._pairs[kind]), len(found)) for kind, found in self._questions.items()]

    def figures(self) -> list[GateFigure]:
        """Every metric of what was asked, each bar of it, as it stands now."""
        out = []
        for metric in Metric:
            if KIND_OF[metric] in self._questions:
                bars: list[Bar | None] = [bar for bar in self._bars if bar.metric is metric]
                out += [figure(metric, bar, self._seen(KIND_OF[metric]), self._errors) for bar in bars or [None]]
        return out

    def evidence(self) -> Evidence:
        """The verdict and what it rests on.

        Raises:
            GateError: it is not decided yet; answer what `ask` asks, or `stop` it.
        """
        if self._ended is None:
            raise GateError("expected a decided trial, found one that waits for answers; stop() it to end it undecided")
        verdict, reason = self._ended
        return Evidence(
            verdict=verdict,
            reason=reason,
            samples=sum(len(pairs) for pairs in self._pairs.values()),
            metrics=tuple(self.figures()),
            needles=tuple(_needles(self._pairs[QuestionKind.NEEDLES])),
            dataset_digest=self._dataset.digest,
            seed=self._seed,
            alpha=self._policy.alpha,
            beta=self._policy.beta,
            as_sample=self._policy.as_sample,
        )

    def _planned(self) -> list[Batch]:
        out = []
        for kind, questions in self._questions.items():
            size = self._size(kind)
            for at in range(0, len(questions), size):
                part = questions[at : at + size]
                again = [one for number, one in enumerate(part, at) if number % self._policy.control_every == 0]
                for arm, asked in ((Arm.BASELINE, part), (Arm.CONTROL, again), (Arm.CANDIDATE, part)):
                    asks = tuple(ask for one in asked for ask in one.asks(self._policy.top_k))
                    if asks:
                        out.append(Batch(_name(kind, at // size, arm), arm, asks))
        return out

    def _size(self, kind: QuestionKind) -> int:
        """Prompts of a round; one haystack is as long as many texts, and a candidate that fails by texts should not cost more of them."""
        return 1 if kind is QuestionKind.NEEDLES else self._policy.batch_samples

    def _any_round(self, number: int) -> bool:
        return any(_name(kind, number, Arm.BASELINE) in self._batches for kind in self._open_kinds())

    def _open_kinds(self) -> list[QuestionKind]:
        return [
            kind
            for kind in self._questions
            if any(KIND_OF[bar.metric] is kind and self._standing(bar) is None for bar in self._bars)
        ]

    def _compare(self) -> None:
        """Pairs of every round that all arms have answered, in the order of the draw."""
        for kind, questions in self._questions.items():
            size = self._size(kind)
            while (answers := self._round(kind)) is not None:
                part = questions[self._rounds_done[kind] * size :][:size]
                for question in part:
                    base, again, found = (arm.get(question.id) for arm in answers)
                    assert base is not None
                    assert found is not None
                    self._pairs[kind].append(compare(question, base, found))
                    if again is not None:
                        self._controls[kind].append(compare(question, base, again))
                self._rounds_done[kind] += 1

    def _round(self, kind: QuestionKind) -> list[dict[str, list[Answer]]] | None:
        """The answers of each arm to the first round that is not compared yet, by question; None while some are owed."""
        names = [_name(kind, self._rounds_done[kind], arm) for arm in ALL_ARMS]
        wanted = [name for name in names if name in self._batches]
        if not wanted or any(name not in self._answers for name in wanted):
            return None
        out = []
        for name in names:
            by_question: dict[str, list[Answer]] = defaultdict(list)
            if name in self._batches:
                for ask, answer in zip(self._batches[name].asks, self._answers[name], strict=True):
                    by_question[ask.id.split(".")[0]].append(answer)
            out.append(dict(by_question))
        return out

    def _decide(self) -> None:
        found = [self._standing(bar) for bar in self._bars]
        for verdict in (GateVerdict.FAIL, GateVerdict.INCONCLUSIVE, GateVerdict.PASS):
            reasons = [one[1] for one in found if one is not None and one[0] is verdict]
            if reasons and (verdict is GateVerdict.FAIL or None not in found):
                self._ended = verdict, "; ".join(reasons)
                return

    def _standing(self, bar: Bar) -> tuple[GateVerdict, str] | None:
        """Remembered: it is asked for far more often than there is something new."""
        key = bar, len(self._pairs[KIND_OF[bar.metric]])
        if key not in self._standings:
            self._standings[key] = standing(bar, self._seen(KIND_OF[bar.metric]), self._errors)
        return self._standings[key]

    def _seen(self, kind: QuestionKind) -> Seen:
        most = len(self._questions[kind])
        least = min(self._policy.min_samples, most)
        return Seen(
            self._pairs[kind], self._controls[kind], self._population[kind], least, most, self._policy.as_sample
        )


def _check(bars: Sequence[Bar], every: dict[QuestionKind, list[Question]]) -> None:
    if not bars:
        raise GateError("expected at least one bar, found none: no loss of quality is allowed or forbidden by default")
    ends = [(bar.metric, bar.is_floor) for bar in bars]
    twice = next((end for end in ends if ends.count(end) > 1), None)
    if twice is not None:
        raise GateError(f"expected one {'min' if twice[1] else 'max'} for {twice[0]}, found {ends.count(twice)}")
    for bar in bars:
        if not every[KIND_OF[bar.metric]]:
            raise GateError(f"{bar}: expected prompts of the kind {KIND_OF[bar.metric]}, found none in the dataset")


def _name(kind: QuestionKind, number: int, arm: Arm) -> str:
    return f"{kind}/{number}/{arm}"


def _needles(pairs: Sequence[Pair]) -> list[NeedleCount]:
    by_place: dict[tuple[int, float], list[tuple[bool, bool]]] = defaultdict(list)
    for pair in pairs:
        if isinstance(pair.question.of, Tale):
            for needle, *hits in zip(pair.question.of.needles, pair.base_hits, pair.hits, strict=True):
                by_place[pair.question.of.length, needle.depth].append((hits[0], hits[1]))
    return [
        NeedleCount(words, depth, len(hits), sum(base for base, _ in hits), sum(hit for _, hit in hits))
        for (words, depth), hits in sorted(by_place.items())
    ]
