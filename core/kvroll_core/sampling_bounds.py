"""What every sampling value may be: the one table that the API, the worker's border and the engine check against.

A value outside is told as (field, bound, found), never bent into its range: who asked for it would not learn of it.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_CHOICES = 128
"""Of one request: prompts times `n`."""
MAX_STOPS = 16
"""Stop strings of a session; OpenAI takes 4, vLLM any number."""
MAX_STOP_CHARS = 1024
"""Of one stop string: so much text is held back while it may still become one."""
MAX_LOGPROBS = 20
"""Alternatives reported for a token."""
MAX_TOKENS = 2**31 - 1
_SHOWN_CHARS = 60
# Floats cross the wire with 32 bits: what one end takes for 0.01 the other must too.
_WIRE_HUNDREDTH: float = struct.unpack("f", struct.pack("f", 0.01))[0]


@dataclass(frozen=True)
class Bound:
    """From `least` to `most`; NaN is in no bound. `above`: `least` itself is out. `whole`: an int, and no bool."""

    least: float
    most: float
    above: bool = False
    whole: bool = False

    def holds(self, value: object) -> bool:
        """True if the value is a number of the right kind in the range."""
        kind = int if self.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind):
            return False
        return (self.least < value if self.above else self.least <= value) and value <= self.most

    def __str__(self) -> str:
        ends = f"above {self.least:g}, to {self.most:g}" if self.above else f"{self.least:g} to {self.most:g}"
        return f"a whole number from {int(self.least)} to {int(self.most)}" if self.whole else ends


BOUNDS = {
    "n": Bound(1, MAX_CHOICES, whole=True),
    "temperature": Bound(0, 2),
    "top_p": Bound(0, 1, above=True),
    "top_k": Bound(0, 2**31 - 1, whole=True),
    "min_p": Bound(0, 1),
    "seed": Bound(0, 2**64 - 1, whole=True),
    "max_tokens": Bound(1, MAX_TOKENS, whole=True),
    "min_tokens": Bound(0, MAX_TOKENS, whole=True),
    "repetition_penalty": Bound(_WIRE_HUNDREDTH, 100),
    "presence_penalty": Bound(-2, 2),
    "frequency_penalty": Bound(-2, 2),
    "logit_bias": Bound(-100, 100),
    "logprobs": Bound(0, MAX_LOGPROBS, whole=True),
    "prompt_logprobs": Bound(0, MAX_LOGPROBS, whole=True),
    "priority": Bound(-(2**31), 2**31 - 1, whole=True),
}
"""By the field's name in the API. In `top_k` and both penalties of OpenAI 0 is off, in `repetition_penalty` 1."""
_NUMBERS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "min_tokens",
    "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
_OPTIONAL = ("logprobs", "prompt_logprobs")


@dataclass(frozen=True)
class Violation:
    """One value that is out of its bound."""

    field: str
    bound: str
    found: str

    def __str__(self) -> str:
        return f"{self.field}: expected {self.bound}, found {self.found}"


class SamplingValues(Protocol):
    """The sampling parameters of one session, every default resolved."""

    @property
    def min_tokens(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def stop(self) -> Sequence[str]: ...
    @property
    def stop_token_ids(self) -> Sequence[int]: ...
    @property
    def logit_bias(self) -> Sequence[tuple[int, float]]: ...


def sampling_violations(sampling: SamplingValues, vocab_size: int) -> Iterator[Violation]:
    """Every value that is out of its bound, in a fixed order; nothing for parameters that can be sampled with."""
    for name in _NUMBERS:
        yield from number_violations(name, getattr(sampling, name))
    for name in _OPTIONAL:
        if (value := getattr(sampling, name)) is not None:
            yield from number_violations(name, value)
    both = BOUNDS["min_tokens"].holds(sampling.min_tokens) and BOUNDS["max_tokens"].holds(sampling.max_tokens)
    if both and sampling.min_tokens > sampling.max_tokens:
        yield Violation("min_tokens", f"at most max_tokens, {sampling.max_tokens}", str(sampling.min_tokens))
    yield from stop_violations(sampling.stop)
    yield from token_id_violations("stop_token_ids", sampling.stop_token_ids, vocab_size)
    yield from token_id_violations("logit_bias", [token_id for token_id, _ in sampling.logit_bias], vocab_size)
    for _, bias in sampling.logit_bias:
        yield from number_violations("logit_bias", bias)


def number_violations(name: str, value: object) -> Iterator[Violation]:
    """The value of a field of `BOUNDS`, if it is out of its bound."""
    if not BOUNDS[name].holds(value):
        yield Violation(name, str(BOUNDS[name]), _shown(value))


def stop_violations(stop: Sequence[str]) -> Iterator[Violation]:
    """Stop strings: few, none empty, none endless, each of characters that UTF-8 can write."""
    if len(stop) > MAX_STOPS:
        yield Violation("stop", f"at most {MAX_STOPS} strings", str(len(stop)))
    for one in stop:
        if not isinstance(one, str):
            yield Violation("stop", "strings", _shown(one))
        elif not 0 < len(one) <= MAX_STOP_CHARS:
            yield Violation("stop", f"strings of 1 to {MAX_STOP_CHARS} characters", f"one of {len(one)}")
        elif not is_utf8(one):
            yield Violation("stop", "text that UTF-8 can write", f"a lone surrogate in {ascii(one)[:_SHOWN_CHARS]}")


def token_id_violations(name: str, token_ids: Iterable[int], vocab_size: int) -> Iterator[Violation]:
    """The first id that the vocabulary does not have, if any."""
    for token_id in token_ids:
        if not _is_whole(token_id) or not 0 <= token_id < vocab_size:
            yield Violation(name, f"token ids from 0 to {vocab_size - 1}", _shown(token_id))
            return


def is_utf8(text: str) -> bool:
    """False for text with a lone surrogate, which no wire can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python writes
        text = f"an {type(value).__name__} too long to write"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
