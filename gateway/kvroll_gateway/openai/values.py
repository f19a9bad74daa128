"""The types of request fields: as strict as OpenAI's schema and as lenient. Each stops at its first complaint, however much is wrong.

JSON has one kind of number: 1.0 is an integer, 1.5 and true are not, and "0.5" is no number at all.
"""

import math
import re
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator

from kvroll_core.sampling_bounds import BOUNDS, MAX_STOP_CHARS, MAX_STOPS

MAX_STOP_IDS = 4096
MAX_BIASES = 4096
_TOKEN_IDS = 2**32
_CANONICAL = re.compile(r"0|[1-9][0-9]{0,9}")


def shown(value: Any) -> str:
    """A value as a message may quote it: short."""
    if isinstance(value, (list, dict)):
        return f"a list of {len(value)}" if isinstance(value, list) else f"an object of {len(value)} keys"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def whole(value: Any) -> int:
    """An integer as JSON has it."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"expected an integer, found {shown(value)}")


def number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if math.isfinite(found):
            return found
    raise ValueError(f"expected a number, found {shown(value)}")


def _number_within(name: str, value: Any) -> float:
    found = number(value)
    if not BOUNDS[name].holds(found):
        raise ValueError(f"expected {BOUNDS[name]}, found {shown(value)}")
    return found


def _whole_within(name: str, value: Any) -> int:
    found = whole(value)
    if not BOUNDS[name].holds(found):
        raise ValueError(f"expected {BOUNDS[name]}, found {shown(value)}")
    return found


def number_of(name: str) -> BeforeValidator:
    """Checks a number against its row of the table that worker and engine check against too."""
    return BeforeValidator(partial(_number_within, name))


def whole_of(name: str) -> BeforeValidator:
    """The same for an integer."""
    return BeforeValidator(partial(_whole_within, name))


Integer = Annotated[int, BeforeValidator(whole)]


def token_ids(value: Any) -> list[int]:
    """A list of token ids."""
    if not isinstance(value, list):
        raise ValueError(f"expected a list of token ids, found {shown(value)}")
    ids = [one if type(one) is int else whole(one) for one in value]
    wrong = [edge for edge in (min(ids, default=0), max(ids, default=0)) if not 0 <= edge < _TOKEN_IDS]
    if wrong:
        raise ValueError(f"expected token ids of 0 to {_TOKEN_IDS - 1}, found {shown(wrong[0])}")
    return ids


def _few_token_ids(value: Any) -> list[int]:
    ids = token_ids(value)
    if len(ids) > MAX_STOP_IDS:
        raise ValueError(f"expected at most {MAX_STOP_IDS} token ids, found {len(ids)}")
    return ids


def _prompts(value: Any) -> list[str] | list[list[int]]:
    """Every prompt of a request: one or several, as text or as token ids."""
    several = value if isinstance(value, list) and value and isinstance(value[0], (str, list)) else [value]
    text = isinstance(several[0], str)
    found: list[Any] = [_text(one) if text else token_ids(one) for one in several]
    if not all(found):
        raise ValueError("expected text or token ids, found none")
    return found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"expected every prompt as text, found {shown(value)} beside text")


def _stops(value: Any) -> list[str]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise ValueError(f"expected text or a list of texts, found {shown(value)}")
    if len(stops) > MAX_STOPS:
        raise ValueError(f"expected at most {MAX_STOPS} stop strings, found {len(stops)}")
    for one in stops:
        if not isinstance(one, str):
            raise ValueError(f"expected stop strings, found {shown(one)}")
        if not 0 < len(one) <= MAX_STOP_CHARS:
            raise ValueError(f"expected stop strings of 1 to {MAX_STOP_CHARS} characters, found one of {len(one)}")
    return stops


def _biases(value: Any) -> dict[int, float]:
    """By token id; in JSON the keys are strings, of which each id has one."""
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {shown(value)}")
    if len(value) > MAX_BIASES:
        raise ValueError(f"expected at most {MAX_BIASES} token ids, found {len(value)}")
    found = {}
    for key, bias in value.items():
        if _CANONICAL.fullmatch(key) is None or int(key) >= _TOKEN_IDS:
            raise ValueError(f"expected token ids of 0 to {_TOKEN_IDS - 1} as keys, found {shown(key)}")
        found[int(key)] = _number_within("logit_bias", bias)
    return found


Prompts = Annotated[list[str] | list[list[int]], PlainValidator(_prompts)]
Stops = Annotated[list[str], PlainValidator(_stops)]
StopTokenIds = Annotated[list[int], PlainValidator(_few_token_ids)]
Biases = Annotated[dict[int, float], PlainValidator(_biases)]
