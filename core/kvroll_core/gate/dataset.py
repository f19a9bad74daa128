"""What a gate asks: texts to be scored and tasks with their checks, one JSON object a line."""

import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from kvroll_core.gate.bar import GateError

_SHAPES = '{"text": …}, {"prompt": …, "expected": …} or {"prompt": …, "choices": […], "answer": number}'


class DatasetError(GateError):
    """A line that is none of the three shapes, by its number."""


@dataclass(frozen=True)
class Text:
    """Scored token by token, teacher-forced: agreement, KL and perplexity."""

    text: str


@dataclass(frozen=True)
class Task:
    """Right if greedy decoding writes `choices[answer]`, where that is the only one; else if it is the likeliest of them."""

    prompt: str
    choices: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class Dataset:
    """`digest` is the SHA-256 of the file's bytes."""

    texts: tuple[Text, ...]
    tasks: tuple[Task, ...]
    digest: str


def parse(text: str) -> Dataset:
    """A dataset of JSON Lines; empty lines count for nothing.

    Raises:
        DatasetError: a line that is no such object, the first of them; or there is none at all.
    """
    texts: list[Text] = []
    tasks: list[Task] = []
    # Not splitlines(): that also splits at U+2028 and its like, which JSON allows inside a string.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            item = _item(number, line)
            if isinstance(item, Text):
                texts.append(item)
            else:
                tasks.append(item)
    if not texts and not tasks:
        raise DatasetError(f"expected lines of {_SHAPES}, found none")
    return Dataset(tuple(texts), tuple(tasks), hashlib.sha256(text.encode()).hexdigest())


def bundled() -> Dataset:
    """The small dataset that comes with kvroll: 48 short texts and 12 tasks."""
    return parse(resources.files("kvroll_core.gate").joinpath("bundled.jsonl").read_text(encoding="utf-8"))


def _item(number: int, line: str) -> Text | Task:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise DatasetError(f"line {number}: expected a JSON object, found: {error}") from error
    if not isinstance(found, dict):
        raise DatasetError(f"line {number}: expected a JSON object, found {type(found).__name__}")
    match sorted(found):
        case ["text"] if _is_said(found["text"]):
            return Text(found["text"])
        case ["expected", "prompt"] if _is_said(found["prompt"]) and _is_said(found["expected"]):
            return Task(found["prompt"], (found["expected"],), 0)
        case ["answer", "choices", "prompt"] if _is_said(found["prompt"]) and _are_choices(found):
            return Task(found["prompt"], tuple(found["choices"]), found["answer"])
    raise DatasetError(f"line {number}: expected {_SHAPES}, each string not empty, found {_shown(line)}")


def _is_said(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _are_choices(found: dict[str, Any]) -> bool:
    choices, answer = found["choices"], found["answer"]
    return (
        isinstance(choices, list)
        and len(choices) > 1
        and all(_is_said(choice) for choice in choices)
        and len(set(choices)) == len(choices)
        and type(answer) is int
        and 0 <= answer < len(choices)
    )


def _shown(line: str) -> str:
    most = 80
    return line if len(line) <= most else f"{line[:most]}…"
