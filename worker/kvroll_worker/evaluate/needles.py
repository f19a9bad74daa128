"""The gate's needles as token ids: which of them are the answers that a model must give by itself. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvroll_core.gate.needles import DEPTHS, tell
from kvroll_worker.evaluate.pieces import Encode, ids_of_pieces

__all__ = ["DEPTHS", "Haystack", "NeedleAnswer", "RecalledNeedle", "haystack", "recall_of"]


@dataclass(frozen=True)
class NeedleAnswer:
    """The ids from `first` to `last` of a haystack are the answer to the needle at that depth (0 the start, 1 the end)."""

    depth: float
    first: int
    last: int


@dataclass(frozen=True)
class Haystack:
    """A filler of about `length` tokens with its needles, then a question and its answer for each."""

    length: int
    token_ids: list[int]
    answers: tuple[NeedleAnswer, ...]


@dataclass(frozen=True)
class RecalledNeedle:
    """Whether one needle was found."""

    depth: float
    hit: bool


def haystack(encode: Encode, length: int, seed: int, depths: Sequence[float] = DEPTHS) -> Haystack:
    """The core's tale of that seed, `length` in tokens, its questions and answers behind it.

    Raises:
        ValueError: more depths than there are questions, or a depth outside 0 to 1.
    """
    tale = tell(seed, length, depths, lambda text: len(encode(text)))
    pieces = [f"{tale.told}\n"]
    for needle in tale.needles:
        pieces += [f"\n{needle.question}", needle.answer, "."]
    ids, begins = ids_of_pieces(encode, pieces)
    answers = (
        NeedleAnswer(needle.depth, begins[2 + 3 * k], begins[3 + 3 * k] - 1) for k, needle in enumerate(tale.needles)
    )
    return Haystack(length, ids, tuple(answers))


def recall_of(found: Iterable[RecalledNeedle]) -> float:
    """The share that was found, NaN where nothing was asked."""
    hits = [one.hit for one in found]
    return sum(hits) / len(hits) if hits else float("nan")
