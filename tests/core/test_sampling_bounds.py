"""The one table of what sampling values may be."""

import math
import struct
from dataclasses import dataclass
from typing import Any

import pytest

from kvroll_core.sampling_bounds import BOUNDS, MAX_STOP_CHARS, MAX_STOPS, number_violations, sampling_violations

NAN, INF = math.nan, math.inf


@dataclass
class Values:
    temperature: Any = 1.0
    top_p: Any = 1.0
    top_k: Any = 0
    min_p: Any = 0.0
    seed: Any = 0
    max_tokens: Any = 16
    min_tokens: Any = 0
    repetition_penalty: Any = 1.0
    presence_penalty: Any = 0.0
    frequency_penalty: Any = 0.0
    logprobs: Any = None
    prompt_logprobs: Any = None
    stop: Any = ()
    stop_token_ids: Any = ()
    logit_bias: Any = ()


def complaints(**values: Any) -> list[str]:
    return [str(one) for one in sampling_violations(Values(**values), vocab_size=264)]


def test_defaults_and_ends_of_ranges_are_fine() -> None:
    assert complaints() == []
    most = {"temperature": 2, "top_k": 2**31 - 1, "seed": 2**64 - 1, "max_tokens": 2**31 - 1, "min_tokens": 2**31 - 1}
    assert complaints(**most, top_p=5e-324, min_p=1, logprobs=20, stop=("a" * MAX_STOP_CHARS,) * MAX_STOPS) == []
    assert complaints(logit_bias=((0, -100.0), (263, 100)), stop_token_ids=(0, 263), stop=("\U0001f600",)) == []


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [NAN, INF, -INF, -1e-9, 2.1, "1", None, True, 10**400]),
        ("top_p", [NAN, 0, 0.0, -0.0, -1, 1.0000001, INF]),
        ("top_k", [-1, 2**31, 1.0, NAN, True]),
        ("min_p", [NAN, 1.5, -0.1]),
        ("seed", [-1, 2**64, 0.5]),
        ("max_tokens", [0, -1, 2**31, 1.5]),
        ("min_tokens", [-1, 17]),
        ("repetition_penalty", [0, 0.0, -1, 101, NAN]),
        ("presence_penalty", [-2.1, 2.1, NAN, INF]),
        ("frequency_penalty", [-2.1, 2.1, NAN, INF]),
        ("logprobs", [-1, 21, 1.0]),
        ("prompt_logprobs", [-1, 21]),
        ("stop", [("",), ("a",) * (MAX_STOPS + 1), ("a" * (MAX_STOP_CHARS + 1),), ("\ud83d",), (7,)]),
        ("stop_token_ids", [(-1,), (264,), (2**70,), (1.0,)]),
        ("logit_bias", [((5, NAN),), ((5, INF),), ((5, -100.1),), ((264, 0.0),), ((-1, 0.0),)]),
    ],
)
def test_every_value_outside_is_told_by_field_bound_and_what_was_found(field: str, values: list[Any]) -> None:
    for value in values:
        [complaint] = complaints(**{field: value})
        assert complaint.startswith(f"{field}: expected "), value
        assert ", found " in complaint


@pytest.mark.parametrize("name", BOUNDS)
def test_the_ends_of_a_range_are_in_it_after_crossing_the_wire_too(name: str) -> None:
    bound = BOUNDS[name]
    if not bound.whole:
        for end in (bound.most, bound.least) if not bound.above else (bound.most,):
            assert bound.holds(struct.unpack("f", struct.pack("f", float(f"{end:g}")))[0]), end


def test_what_is_found_is_told_briefly_whatever_it_is() -> None:
    assert complaints(top_p=0) == ["top_p: expected above 0, to 1, found 0"]
    assert complaints(min_tokens=17) == ["min_tokens: expected at most max_tokens, 16, found 17"]
    assert max(map(len, complaints(seed=10**50_000, stop=("x" * 10**6,), stop_token_ids=(10**50_000,)))) < 200


def test_each_bound_reads_as_it_holds() -> None:
    for name, bound in BOUNDS.items():
        assert bound.holds(int(bound.most)) == (not list(number_violations(name, int(bound.most))))
        assert str(int(bound.most)) in str(bound) or f"{bound.most:g}" in str(bound)
        assert not bound.holds(math.nan)
