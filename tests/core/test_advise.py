"""Traffic into numbers, numbers into an order; what is counted is checked against a count by hand or by brute force."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.advise import (
    AdvisedStep,
    LeverDecision,
    Profile,
    Room,
    TracedRequest,
    TraceError,
    helps,
    order,
    profile_of,
)
from kvroll_core.budget import Ask, ModelShape, reckon
from kvroll_core.precision.precision import Precision
from kvroll_core.wall import Counters, KernelRates, Load, Machine, classify, recommend

GIB = 2**30
LLAMA_8B = ModelShape(32, 4096, 32, 8, 128, 14336, 128256, False, 131072)
SYSTEM = list(range(1000, 1100))  # 100 tokens: three whole pages


def request(arrival: float, prompt: list[int], *, duration: float | None = 10, output: int = 20) -> TracedRequest:
    return TracedRequest(arrival, duration, len(prompt), output, prompt)


def decisions(steps: tuple[AdvisedStep, ...]) -> dict[str, tuple[LeverDecision, str]]:
    return {step.lever: (step.decision, step.to) for step in steps}


def test_a_shared_beginning_is_counted_in_whole_pages() -> None:
    trace = [request(n, [*SYSTEM, *range(n * 60, n * 60 + 60)]) for n in range(4)]
    profile = profile_of(trace)
    assert profile.overlap == 3 * 96 / (4 * 160)
    assert profile.distinct_tokens == 96 + 4 * 64


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    same = list(range(64))
    assert profile_of([request(0, same), request(1, same)]).overlap == 32 / 128


def test_the_same_page_behind_another_beginning_is_no_hit() -> None:
    page = list(range(32))
    other = list(range(100, 132))
    assert profile_of([request(0, [*page, *page, 1]), request(1, [*other, *page, 1])]).overlap == 0


def test_who_comes_first_in_the_file_does_not_matter() -> None:
    early, late = request(0, SYSTEM), request(5, [*SYSTEM, *range(50)])
    assert profile_of([late, early]) == profile_of([early, late])


def test_the_peak_counts_who_is_there_at_once() -> None:
    trace = [request(0, SYSTEM, duration=10), request(5, SYSTEM, duration=10), request(10, SYSTEM, duration=10)]
    profile = profile_of(trace)
    assert (profile.peak_sessions, profile.peak_tokens) == (2, 240)
    assert profile_of([replace(trace[0], duration_seconds=None)]).peak_sessions is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30))
def test_the_peak_is_that_of_looking_at_every_moment(spans: list[tuple[int, int]]) -> None:
    found = profile_of([request(a, SYSTEM, duration=d) for a, d in spans]).peak_sessions
    moments = [sum(a <= t < a + d for a, d in spans) for t in range(71)]
    assert found == max([*moments, 0]) or (found == 1 and max(moments) == 0)


prompts = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=200), min_size=1, max_size=12)


@given(prompts)
def test_the_overlap_is_that_of_comparing_every_pair(found: list[list[int]]) -> None:
    hits = 0
    for index, prompt in enumerate(found):
        pages = (len(prompt) - 1) // 32
        hits += 32 * max(
            [n for n in range(pages + 1) if any(e[: 32 * n] == prompt[: 32 * n] for e in found[:index])] or [0]
        )
    profile = profile_of([request(float(n), p) for n, p in enumerate(found)])
    assert profile.overlap == pytest.approx(hits / sum(map(len, found)))


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(TraceError, match="found none"):
        profile_of([])


def peak(sessions: int, tokens: int, overlap: float = 0.0) -> Profile:
    return Profile(sessions, sessions, sessions * tokens, overlap)


ROOM = Room(LLAMA_8B, "bf16", "bf16", 80 * GIB)


def test_a_prefix_cache_is_worth_it_where_prompts_are_shared() -> None:
    assert decisions(order(peak(1, 100, 0.4)))["prefixCache"] == (LeverDecision.ON, "On")
    assert decisions(order(peak(1, 100, 0.04)))["prefixCache"] == (LeverDecision.LEAVE, "Off")


def test_nothing_is_advised_where_the_peak_fits_and_nothing_is_shared() -> None:
    steps = order(peak(8, 2048), ROOM)
    assert not helps(steps)
    assert decisions(steps)["paging"][0] is LeverDecision.ALWAYS
    assert {d for lever, (d, _) in decisions(steps).items() if lever != "paging"} == {LeverDecision.LEAVE}


@pytest.mark.parametrize(
    ("sessions", "kv", "weights", "replica"),
    [
        (100, (LeverDecision.LEAVE, "-"), (LeverDecision.LEAVE, "-"), (LeverDecision.LEAVE, "-")),
        (128, (LeverDecision.ON, "int8"), (LeverDecision.LEAVE, "-"), (LeverDecision.LEAVE, "-")),
        (230, (LeverDecision.ON, "kivi4"), (LeverDecision.LEAVE, "-"), (LeverDecision.LEAVE, "-")),
        (350, (LeverDecision.ON, "kivi4"), (LeverDecision.ON, "int8"), (LeverDecision.LEAVE, "-")),
        (400, (LeverDecision.ON, "kivi2"), (LeverDecision.LEAVE, "-"), (LeverDecision.LEAVE, "-")),
        (600, (LeverDecision.ON, "kivi2"), (LeverDecision.ON, "int4"), (LeverDecision.LEAVE, "-")),
        (1000, (LeverDecision.ON, "kivi2"), (LeverDecision.ON, "mxfp4"), (LeverDecision.ON, "2 replicas")),
    ],
)
def test_the_gentlest_precision_that_fits_the_peak(sessions: int, kv: Any, weights: Any, replica: Any) -> None:
    found = decisions(order(peak(sessions, 4096), ROOM))
    assert found["weights"] == weights
    assert found["replica"] == replica
    assert found["kvCache"] == kv


@given(st.integers(1, 2000), st.integers(1, 20_000), st.sampled_from([24, 48, 80, 141]))
def test_what_is_advised_fits(sessions: int, tokens: int, gib: int) -> None:
    room = replace(ROOM, device_bytes=gib * GIB)
    steps = order(peak(sessions, tokens), room)
    if "not one does either" in steps[2].why:
        assert not helps(steps)
        return
    found = decisions(steps)
    weights = found["weights"][1] if found["weights"][0] is LeverDecision.ON else "bf16"
    kv = found["kvCache"][1] if found["kvCache"][0] is LeverDecision.ON else "bf16"
    fit = reckon(LLAMA_8B, Ask(weights, kv, sessions, tokens, device_bytes=gib * GIB))
    workers = int(found["replica"][1].split()[0]) if found["replica"][0] is LeverDecision.ON else 1
    assert fit.max_sessions is not None
    assert (workers - 1) * fit.max_sessions < sessions <= workers * fit.max_sessions


def test_sessions_that_can_never_fit_are_no_reason_to_change() -> None:
    assert not helps(order(peak(1, 100_000), replace(ROOM, device_bytes=3 * GIB)))


def test_what_is_not_told_is_asked_for() -> None:
    steps = order(replace(peak(8, 100), peak_sessions=None), ROOM)
    assert decisions(steps)["kvCache"][0] is LeverDecision.UNKNOWN
    assert "seconds of a token" in steps[2].why


def live(**change: Any) -> tuple[AdvisedStep, ...]:
    counters = replace(
        Counters(
            10,
            32,
            0,
            waiting_for_room=0,
            kv_used=0.5,
            generated_tokens=9,
            busy_seconds=9,
            memory_active=0.1,
            tensor_active=0.1,
        ),
        **change,
    )
    verdict = classify(counters, Machine(1e12, 1e14))
    load = Load(LLAMA_8B, Precision("bf16", "bf16"), 32, 20_000, 60 * GIB)
    rates = KernelRates({"bf16": 2.5e12, "int8": 2.4e12}, {"bf16": 3e12, "int8": 2.7e12})
    return order(peak(32, 20_000, 0.3), None, verdict, recommend(verdict, load, rates))


def test_a_live_wall_decides_about_precision() -> None:
    capacity = decisions(live(waiting_for_room=1.0, kv_used=0.95))
    assert capacity["kvCache"] == (LeverDecision.ON, "int8")
    assert capacity["replica"] == (LeverDecision.ON, "2 replicas")
    compute = live(tensor_active=0.9)
    assert decisions(compute)["kvCache"][0] is LeverDecision.LEAVE
    assert decisions(compute)["replica"][0] is LeverDecision.ON
    assert "more KV room or fewer KV bytes will not help" in compute[2].why
    host = decisions(live())
    assert {host[lever][0] for lever in ("kvCache", "weights", "replica")} == {LeverDecision.LEAVE}
    unknown = decisions(live(busy_seconds=None))
    assert unknown["kvCache"][0] is LeverDecision.UNKNOWN
