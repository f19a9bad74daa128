"""The prompts of a trial: what each asks of a model, and what its answers are worth."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvroll_core.gate.answer import Answer, Ask, Score
from kvroll_core.gate.dataset import Dataset, Task, Text
from kvroll_core.gate.distance import NotComparableError
from kvroll_core.gate.needles import Tale, tell
from kvroll_core.gate.policy import TrialPolicy


class QuestionKind(StrEnum):
    """Kinds of prompts, each a population of its own that is drawn from in random order."""

    TEXT = "text"
    NEEDLES = "needles"
    TASK = "task"


@dataclass(frozen=True)
class Question:
    """One prompt, the cluster of the test: what it holds is taken together."""

    id: str
    kind: QuestionKind
    of: Text | Task | Tale

    def asks(self, top_k: int) -> tuple[Ask, ...]:
        """What a model is asked; only texts need the likeliest tokens."""
        match self.of:
            case Text(text):
                return (Ask(self.id, None, (text,), top_k),)
            case Task(prompt, choices, _):
                return (Ask(self.id, prompt, choices, 1),)
            case Tale(_, told, needles):
                return tuple(
                    Ask(f"{self.id}.{at}", f"{told}\n\n{needle.question}", (needle.answer,), 1)
                    for at, needle in enumerate(needles)
                )

    def hits(self, answers: Sequence[Answer]) -> list[bool]:
        """What was got right: each needle of a tale, or the one task.

        Raises:
            NotComparableError: there is not one score for each continuation.
        """
        match self.of:
            case Task(_, choices, answer):
                scores = self._scores(answers[0], len(choices))
                if len(choices) == 1:
                    return [scores[0].is_greedy]
                sums = [score.logprob_sum for score in scores]
                return [sums.index(max(sums)) == answer]
            case Tale():
                return [self._scores(answer, 1)[0].is_greedy for answer in answers]
        return []

    def text_score(self, answers: Sequence[Answer]) -> Score:
        """The one score of a text. Raises NotComparableError if there is not one."""
        return self._scores(answers[0], 1)[0]

    def _scores(self, answer: Answer, wanted: int) -> tuple[Score, ...]:
        if len(answer.scores) != wanted:
            raise NotComparableError(f"{self.id}: expected {wanted} scores, found {len(answer.scores)}")
        return answer.scores


def questions_of(dataset: Dataset, policy: TrialPolicy, seed: int) -> dict[QuestionKind, list[Question]]:
    """Every question in the dataset's order, and the haystacks of that seed."""
    tales = [tell(seed * 1_000_003 + at, words, policy.needle_depths) for at, words in enumerate(policy.needle_words)]
    contents: dict[QuestionKind, Sequence[Text | Task | Tale]] = {
        QuestionKind.TEXT: dataset.texts,
        QuestionKind.NEEDLES: tales,
        QuestionKind.TASK: dataset.tasks,
    }
    return {
        kind: [Question(f"{kind}-{at}", kind, one) for at, one in enumerate(found)] for kind, found in contents.items()
    }
