"""Needles in a haystack: facts told at several depths of a filler text, and asked for at its end.

The test of RULER's and gkamradt's kind, cut to what a model of 135M parameters can do: one sentence a fact, the question is the
sentence without its last word, and the answer is right only word for word. Short contexts do not show what long ones lose: fp8
attention with narrow sums lost 78 of 91 points at 128k tokens and none at 8k (vllm-project.github.io, 2026-04-22).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
QUESTIONS = (
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
class Needle:
    """A fact: the question and then the answer, which begins with its space, told at that depth (0 the start, 1 the end)."""

    depth: float
    question: str
    answer: str


@dataclass(frozen=True)
class Tale:
    """A filler of about `length` with its needles, in the order in which they are to be asked for."""

    length: int
    told: str
    needles: tuple[Needle, ...]


def words_in(text: str) -> int:
    """The length of a text for whom has no tokenizer."""
    return len(text.split())


def tell(seed: int, length: int, depths: Sequence[float] = DEPTHS, measure: Callable[[str], int] = words_in) -> Tale:
    """A tale whose filler, facts and order of questions follow from the seed; `measure` gives the length of a sentence.

    Raises:
        ValueError: more depths than there are questions, or a depth outside 0 to 1.
    """
    if len(depths) > len(QUESTIONS) or any(not 0 <= depth <= 1 for depth in depths):
        raise ValueError(f"expected at most {len(QUESTIONS)} depths from 0 to 1, found {tuple(depths)}")
    draw = random.Random(f"needles {seed} {length}")
    questions, words = draw.sample(QUESTIONS, len(depths)), draw.sample(_WORDS, len(depths))
    needles = [
        Needle(depth, question, f" {word}") for depth, question, word in zip(depths, questions, words, strict=True)
    ]
    told = _told(length, needles, draw, measure)
    order = draw.sample(range(len(depths)), len(depths))
    return Tale(length, told, tuple(needles[index] for index in order))


def _told(length: int, needles: Sequence[Needle], draw: random.Random, measure: Callable[[str], int]) -> str:
    """Filler sentences with each fact where its depth is reached."""
    sentences: list[str] = []
    reached = 0
    waiting = sorted(needles, key=lambda needle: needle.depth)
    while reached < length or waiting:
        if waiting and reached >= waiting[0].depth * length:
            fact = waiting.pop(0)
            sentence = f"{fact.question}{fact.answer}."
        else:
            sentence = f"{draw.choice(_WHO)} {draw.choice(_DID)} {draw.choice(_WHAT)} {draw.choice(_WHEN)}."
        reached += measure(f" {sentence}")
        sentences.append(sentence)
    return " ".join(sentences)
