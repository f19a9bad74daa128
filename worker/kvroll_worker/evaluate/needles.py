"""Needles in a haystack: facts told at several depths of a filler text, and asked for at its end. Pure.

The test of RULER's and gkamradt's kind, cut to what a model of 135M parameters can do: one sentence a fact, the question is the
sentence without its last word, and the answer is right only word for word. Short contexts do not show what long ones lose: fp8
attention with narrow sums lost 78 of 91 points at 128k tokens and none at 8k (vllm-project.github.io, 2026-04-22).
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvroll_worker.evaluate.pieces import Encode, ids_of_pieces

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
_QUESTIONS = (
    "The password of the north gate is",
    "The name of the captain's ship is",
    "The gold of the pirates was buried under the",
    "The favourite animal of the queen is the",
    "The doctor's black horse is called",
    "The key of the cellar is hidden inside the",
    "The only gift that the general accepted was the",
    "The secret word of the last train is",
)
"""Unlike each other, so that no question is half answered by another's needle: a small model mixes up those that differ in a name alone."""
_WORDS = (
    "apple",
    "window",
    "tiger",
    "bridge",
    "candle",
    "pencil",
    "garden",
    "violin",
    "hammer",
    "orange",
    "island",
    "ladder",
)
_WHO = (
    "The baker",
    "A sailor",
    "The old miller",
    "A neighbour",
    "The doctor",
    "Her brother",
    "The ferryman",
    "A traveller",
)
_DID = (
    "walked past",
    "waited beside",
    "painted",
    "asked about",
    "wrote down the name of",
    "swept the floor of",
    "looked for",
)
_WHAT = (
    "the gate",
    "the long wall",
    "the market",
    "the lighthouse",
    "the north road",
    "the station",
    "the empty house",
)
_WHEN = (
    "in the morning",
    "before the rain",
    "all winter",
    "on a Sunday",
    "after the harvest",
    "at low tide",
    "twice a week",
)


@dataclass(frozen=True)
class Answer:
    """The ids from `first` to `last` of a haystack are the answer to the needle at that depth (0 the start, 1 the end)."""

    depth: float
    first: int
    last: int


@dataclass(frozen=True)
class Haystack:
    """A filler of about `length` tokens with its needles, then a question and its answer for each."""

    length: int
    token_ids: list[int]
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Found:
    """Whether one needle was found."""

    depth: float
    hit: bool


def haystack(encode: Encode, length: int, seed: int, depths: Sequence[float] = DEPTHS) -> Haystack:
    """A haystack whose filler, facts and order of questions follow from the seed.

    Raises:
        ValueError: more depths than there are questions, or a depth outside 0 to 1.
    """
    if len(depths) > len(_QUESTIONS) or any(not 0 <= depth <= 1 for depth in depths):
        raise ValueError(f"expected at most {len(_QUESTIONS)} depths from 0 to 1, found {tuple(depths)}")
    draw = random.Random(f"needles {seed} {length}")
    questions, words = draw.sample(_QUESTIONS, len(depths)), draw.sample(_WORDS, len(depths))
    facts = [(question, f" {word}", ".") for question, word in zip(questions, words, strict=True)]
    pieces = [f"{_told(encode, length, dict(zip(depths, facts, strict=True)), draw)}\n"]
    order = draw.sample(range(len(depths)), len(depths))
    for index in order:
        question, answer, stop = facts[index]
        pieces += [f"\n{question}", answer, stop]
    ids, begins = ids_of_pieces(encode, pieces)
    answers = (Answer(depths[index], begins[2 + 3 * k], begins[3 + 3 * k] - 1) for k, index in enumerate(order))
    return Haystack(length, ids, tuple(answers))


def recall_of(found: Iterable[Found]) -> float:
    """The share that was found, NaN where nothing was asked."""
    hits = [one.hit for one in found]
    return sum(hits) / len(hits) if hits else float("nan")


def _told(encode: Encode, length: int, facts: dict[float, tuple[str, str, str]], draw: random.Random) -> str:
    """Filler sentences with each fact where its depth is reached."""
    sentences: list[str] = []
    tokens = 0
    waiting = sorted(facts)
    while tokens < length or waiting:
        if waiting and tokens >= waiting[0] * length:
            sentence = "".join(facts[waiting.pop(0)])
        else:
            sentence = f"{draw.choice(_WHO)} {draw.choice(_DID)} {draw.choice(_WHAT)} {draw.choice(_WHEN)}."
        tokens += len(encode(f" {sentence}"))
        sentences.append(sentence)
    return " ".join(sentences)
