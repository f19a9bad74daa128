"""The metrics: their values over the pairs of answers, and the bounded terms whose mean says on which side of a value they lie.

Every metric is a mean over prompts, each prompt weighing the same whatever its length: the prompt is the cluster of the test, because the
tokens within one are not independent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvroll_core.gate.answer import Answer
from kvroll_core.gate.bar import Metric
from kvroll_core.gate.distance import FLOOR_NATS, agree, divergence, mean_loss, paired
from kvroll_core.gate.question import Question, QuestionKind

KIND_OF = {
    Metric.TOP1_AGREEMENT: QuestionKind.TEXT,
    Metric.KL_MEAN: QuestionKind.TEXT,
    Metric.KL_P99: QuestionKind.TEXT,
    Metric.PPL_RATIO: QuestionKind.TEXT,
    Metric.NEEDLE_RECALL: QuestionKind.NEEDLES,
    Metric.TASK_SCORE: QuestionKind.TASK,
}
_TAIL = 0.01
_MOST_RATIO = 1e6


@dataclass(frozen=True)
class Pair:
    """One prompt answered by two arms. `kls` in nats by position; `loss_change` in nats a token, the second arm less the first."""

    question: Question
    agreement: float = math.nan
    kls: tuple[float, ...] = ()
    loss_change: float = math.nan
    base_hits: tuple[bool, ...] = ()
    hits: tuple[bool, ...] = ()


def compare(question: Question, base: Sequence[Answer], found: Sequence[Answer]) -> Pair:
    """What the answers of two arms say of each other.

    Raises:
        NotComparableError: they are not about the same tokens, or lack what was asked for.
    """
    if question.kind is not QuestionKind.TEXT:
        return Pair(question, base_hits=tuple(question.hits(base)), hits=tuple(question.hits(found)))
    scores = question.text_score(base), question.text_score(found)
    positions = paired(*scores)
    return Pair(
        question,
        agreement=sum(agree(*pair) for pair in positions) / len(positions),
        kls=tuple(divergence(*pair) for pair in positions),
        loss_change=mean_loss(scores[1]) - mean_loss(scores[0]),
    )


def value_of(metric: Metric, pairs: Sequence[Pair]) -> float:
    """The metric over these prompts; NaN over none, and for a ratio to nothing."""
    if not pairs:
        return math.nan
    match metric:
        case Metric.TOP1_AGREEMENT:
            return math.fsum(pair.agreement for pair in pairs) / len(pairs)
        case Metric.KL_MEAN:
            return math.fsum(_mean(pair.kls) for pair in pairs) / len(pairs)
        case Metric.KL_P99:
            return _tail(pairs)
        case Metric.PPL_RATIO:
            return math.exp(math.fsum(pair.loss_change for pair in pairs) / len(pairs))
        case _:
            base = math.fsum(_mean(pair.base_hits) for pair in pairs)
            return math.fsum(_mean(pair.hits) for pair in pairs) / base if base else math.nan


def terms_at(metric: Metric, pairs: Sequence[Pair], value: float) -> tuple[list[float], float, float]:
    """A term a prompt, whose mean is above 0 exactly where the metric is above `value`, and the bounds of the terms."""
    match metric:
        case Metric.TOP1_AGREEMENT:
            return [pair.agreement - value for pair in pairs], -value, 1 - value
        case Metric.KL_MEAN:
            return [_mean(pair.kls) - value for pair in pairs], -value, FLOOR_NATS - value
        case Metric.KL_P99:
            shares = [sum(kl > value for kl in pair.kls) / len(pair.kls) for pair in pairs]
            return [share - _TAIL for share in shares], -_TAIL, 1 - _TAIL
        case Metric.PPL_RATIO:
            at = math.log(value) if value > 0 else -FLOOR_NATS
            return [pair.loss_change - at for pair in pairs], -FLOOR_NATS - at, FLOOR_NATS - at
        case _:
            # The ratio of two means is above the value where the mean of this difference is above 0.
            return [_mean(pair.hits) - value * _mean(pair.base_hits) for pair in pairs], -max(value, 0.0), 1.0


def range_of(metric: Metric) -> tuple[float, float]:
    """The ends of what the metric can be."""
    match metric:
        case Metric.TOP1_AGREEMENT:
            return 0.0, 1.0
        case Metric.KL_MEAN | Metric.KL_P99:
            return 0.0, FLOOR_NATS
        case Metric.PPL_RATIO:
            return math.exp(-FLOOR_NATS), math.exp(FLOOR_NATS)
        case _:
            return 0.0, _MOST_RATIO


def standard_error(metric: Metric, pairs: Sequence[Pair]) -> float:
    """Of the value, were these prompts drawn from endlessly many like them; between prompts, by the delta method. NaN of fewer than two.

    For `klP99` NaN: the delta method needs the density at the quantile.
    """
    value = value_of(metric, pairs)
    if len(pairs) < 2 or metric is Metric.KL_P99 or math.isnan(value):
        return math.nan
    terms = terms_at(metric, pairs, value)[0]
    spread = math.sqrt(math.fsum(term * term for term in terms) / (len(terms) - 1) / len(terms))
    if metric is Metric.PPL_RATIO:
        return spread * value
    if KIND_OF[metric] is not QuestionKind.TEXT:
        return spread / (math.fsum(_mean(pair.base_hits) for pair in pairs) / len(pairs))
    return spread


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _tail(pairs: Sequence[Pair]) -> float:
    """The smallest KL above which at most a hundredth of the positions lie, each prompt weighing the same."""
    weighted = sorted(((kl, 1 / len(pair.kls) / len(pairs)) for pair in pairs for kl in pair.kls), reverse=True)
    above = 0.0
    for kl, weight in weighted:
        above += weight
        if above > _TAIL + 1e-12:
            return kl
    return weighted[-1][0]
