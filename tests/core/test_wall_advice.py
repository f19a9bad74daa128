"""Predicted effects: bytes where they decide, measured speed where that does, and nothing where nothing helps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.budget import ModelShape
from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS
from kvroll_core.precision.precision import Precision
from kvroll_core.wall import (
    Advice,
    Counters,
    DtypeError,
    KernelRates,
    Load,
    Machine,
    Stored,
    Wall,
    WallVerdict,
    classify,
    engine_named,
    predict,
    recommend,
    with_model,
)

LLAMA_8B = ModelShape(32, 4096, 32, 8, 128, 14336, 128256, False, 131072)
GIB = 2**30
# H100: attention at 3.0 TB/s in bf16 and 2.77 in fp8 (vLLM's KV post of 2026-04-22), weights at 2.49.
H100 = KernelRates(
    weights={"bf16": 2.49e12, "fp8_e4m3": 2.4e12, "int8": 2.4e12, "int4": 1.6e12},
    kv={"bf16": 3.0e12, "fp8_e4m3": 2.77e12, "int8": 2.77e12, "mxfp8": 2.4e12},
)
# A CPU whose 8-bit attention gets through half as many bytes: no time is gained.
CPU = KernelRates(
    weights={"bf16": 1e10, "int8": 9e9},
    kv={"bf16": 6e9, "int8": 3.1e9, "fp8_e4m3": 2e9, "kivi4": 1.8e9, "kivi2": 1.1e9},
)
LONG = Load(LLAMA_8B, Precision("bf16", "bf16"), sessions=32, tokens=20000, pool_bytes=60 * GIB)
SHORT = replace(LONG, sessions=4, tokens=500)
BUSY = Counters(
    seconds=10, running=32, waiting=0, waiting_for_room=0, kv_used=0.5, generated_tokens=100, busy_seconds=10
)


def verdict_of(wall: Wall, kv_used: float = 0.95) -> WallVerdict:
    crowded = wall in (Wall.CAPACITY, Wall.BOTH)
    reading = wall in (Wall.BANDWIDTH, Wall.BOTH)
    counters = replace(
        BUSY,
        waiting_for_room=float(crowded),
        kv_used=kv_used,
        memory_active=0.8 if reading else 0.1,
        tensor_active=0.9 if wall is Wall.COMPUTE else 0.1,
    )
    found = classify(counters, Machine(1e10, 1e11))
    assert found.wall is wall
    return found


def first(advice: tuple[Advice, ...]) -> tuple[str, str]:
    return advice[0].lever, advice[0].to


def test_kv_in_8_bits_at_a_capacity_wall_nearly_doubles_the_sessions() -> None:
    advice = recommend(verdict_of(Wall.CAPACITY), LONG, H100)
    assert first(advice) == ("kvCache", "int8")
    assert advice[0].effect
    assert advice[0].effect.sessions_ratio == pytest.approx(512 / 264)
    assert advice[-1].lever == "replica"
    assert advice[-1].effect
    assert advice[-1].effect.sessions_ratio == 2
    assert "moves the capacity ceiling: 2.00 x" in advice[-1].why


def test_smaller_weights_are_a_way_to_room_only_where_they_free_a_fifth_of_the_pool() -> None:
    small_pool, large_pool = replace(LONG, pool_bytes=20 * GIB), replace(LONG, pool_bytes=400 * GIB)
    assert "weights" in [a.lever for a in recommend(verdict_of(Wall.CAPACITY), small_pool, H100)]
    assert "weights" not in [a.lever for a in recommend(verdict_of(Wall.CAPACITY), large_pool, H100)]


def test_at_a_bandwidth_wall_long_contexts_want_kv_and_short_ones_weights() -> None:
    assert recommend(verdict_of(Wall.BANDWIDTH), LONG, H100)[0].lever == "kvCache"
    assert recommend(verdict_of(Wall.BANDWIDTH), SHORT, H100)[0].lever == "weights"


def test_room_for_a_larger_batch_is_named_where_weights_are_what_is_read() -> None:
    levers = [a.lever for a in recommend(verdict_of(Wall.BANDWIDTH, kv_used=0.3), SHORT, H100)]
    assert "batch" in levers
    assert "batch" not in [a.lever for a in recommend(verdict_of(Wall.BANDWIDTH, kv_used=0.9), SHORT, H100)]


def test_where_8_bits_are_read_no_faster_they_are_not_advised_for_speed() -> None:
    slow = replace(LONG, sessions=64)
    assert "kvCache" not in [a.lever for a in recommend(verdict_of(Wall.BANDWIDTH), slow, CPU)]
    room = recommend(verdict_of(Wall.CAPACITY), slow, CPU)[0]
    assert (room.lever, room.to) == ("kvCache", "int8")
    assert room.effect
    assert room.effect.step_ratio == pytest.approx(1, abs=0.02)


def test_a_kv_dtype_that_slows_steps_says_so() -> None:
    effect = predict(LONG, CPU, kv_cache="fp8_e4m3")
    assert effect.step_ratio is not None
    assert effect.step_ratio > 1.3
    assert effect.sessions_ratio > 1.9


def test_at_a_compute_wall_kv_precision_does_not_help() -> None:
    advice = recommend(verdict_of(Wall.COMPUTE), LONG, H100)
    assert [a.lever for a in advice] == ["weights", "replica"]
    assert "KV precision will not help" in advice[0].why
    assert "weight-only formats will not" in advice[0].why


@pytest.mark.parametrize("wall", [Wall.IDLE, Wall.HOST])
def test_nothing_to_change_is_said(wall: Wall) -> None:
    verdict = replace(verdict_of(Wall.CAPACITY), wall=wall)
    assert [a.lever for a in recommend(verdict, LONG, H100)] == ["nothing"]


@pytest.mark.parametrize("load", [LONG, None])
def test_nothing_is_advised_without_evidence(load: Load | None) -> None:
    verdict = replace(verdict_of(Wall.CAPACITY), wall=Wall.UNKNOWN)
    assert recommend(verdict, load, H100) == ()


@pytest.mark.parametrize(
    ("engine", "version", "found"),
    [
        ("vllm", "", ["fp8"]),
        ("vllm", "0.20.1", ["fp8"]),
        ("vllm", "0.32.0+cu129", ["fp8", "turboquant_4bit_nc"]),
        ("sglang", "", ["fp8_e4m3"]),
        ("sglang", "0.5.9", ["fp8_e4m3", "fp4_e2m1"]),
        ("trtllm", "", ["fp8"]),
        ("llamacpp", "", ["q8_0", "q4_0"]),
    ],
)
def test_an_engine_is_offered_what_it_has_and_the_flag_that_does_it(
    engine: str, version: str, found: list[str]
) -> None:
    advice = recommend(verdict_of(Wall.CAPACITY), LONG, KernelRates(), engine_named(engine), version)
    offered = [a for a in advice if a.lever == "kvCache"]
    assert [a.to for a in offered] == found
    for a in offered:
        assert a.to in a.flag
        assert a.effect
        bits = next(s.bits for s in engine_named(engine).switches if s.to == a.to and s.lever == "kvCache")
        assert a.effect.sessions_ratio == pytest.approx(16 / bits)
        assert a.effect.step_ratio is None, "no kernel of that engine was measured"


def test_what_an_engine_runs_already_is_not_advised() -> None:
    fp8 = replace(LONG, stored=Stored(kv="fp8", kv_bits=8))
    assert fp8.session_bytes == LONG.session_bytes / 2
    advice = recommend(verdict_of(Wall.CAPACITY), fp8, KernelRates(), engine_named("vllm"))
    assert "kvCache" not in [a.lever for a in advice]


def test_smaller_weights_of_an_engine_free_room() -> None:
    small = replace(LONG, pool_bytes=20 * GIB)
    advice = recommend(verdict_of(Wall.CAPACITY), small, KernelRates(), engine_named("vllm"))
    weights = next(a for a in advice if a.lever == "weights")
    assert (weights.to, weights.flag) == ("fp8", "--quantization fp8")
    assert weights.effect
    assert weights.effect.sessions_ratio == pytest.approx(1 + LLAMA_8B.matrix_elements / (20 * GIB))


def test_who_waits_although_there_is_room_is_held_by_a_limit() -> None:
    counters = replace(BUSY, waiting=9, kv_used=0.3, memory_active=0.1, tensor_active=0.1)
    verdict = classify(counters, Machine(1e10, 1e11))
    assert (verdict.wall, verdict.queues) == (Wall.HOST, True)
    first, replica = recommend(verdict, None, KernelRates(), engine_named("sglang"))
    assert (first.lever, first.flag) == ("sessions", "--max-running-requests, raised")
    assert replica.lever == "replica"


def test_a_dtype_that_an_engine_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(DtypeError, match=r"vLLM .kvCache.: bf16, fp16, fp8,.* found 'kivi4'"):
        Stored.of(engine_named("vllm"), "bf16", "kivi4")


def test_a_replica_leaves_the_weights_part_of_a_step() -> None:
    weights_only = recommend(verdict_of(Wall.BANDWIDTH), replace(SHORT, tokens=1), H100)[-1]
    kv_mostly = recommend(verdict_of(Wall.BANDWIDTH), replace(LONG, sessions=200), H100)[-1]
    assert weights_only.effect
    assert kv_mostly.effect
    assert weights_only.effect.step_ratio == pytest.approx(1, abs=0.001)
    assert kv_mostly.effect.step_ratio == pytest.approx(0.53, abs=0.03)


@pytest.mark.parametrize(
    ("sessions", "tokens", "before_seconds", "after_seconds", "within"),
    [
        # Llama-3.1-8B on an H100 (vLLM's KV post of 2026-04-22): one session of 125k tokens, by the published fits.
        (1, 125_000, 4.37e-8 * 125_000 + 0.00644, 2.37e-8 * 125_000 + 0.00658, 0.02),
        # Eight of 20k in, 2k out: their steps also prefill, which the model of a decode step leaves out.
        (8, 21_000, 0.01518, 0.01293, 0.10),
    ],
)
def test_what_vllm_measured_is_predicted(
    sessions: float, tokens: float, before_seconds: float, after_seconds: float, within: float
) -> None:
    load = Load(LLAMA_8B, Precision("bf16", "bf16"), sessions, tokens, pool_bytes=50 * GIB, step_seconds=before_seconds)
    effect = predict(load, H100, kv_cache="fp8_e4m3")
    assert effect.step_ratio == pytest.approx(after_seconds / before_seconds, rel=within)


loads = st.builds(
    Load,
    shape=st.just(LLAMA_8B),
    precision=st.builds(
        Precision,
        weights=st.sampled_from([n for n in WEIGHT_FORMATS if n != "mxfp4"]),
        kv_cache=st.sampled_from(sorted(KV_FORMATS)),
    ),
    sessions=st.floats(0.1, 500),
    tokens=st.floats(1, 100_000),
    pool_bytes=st.floats(GIB, 500 * GIB),
    step_seconds=st.none() | st.floats(1e-4, 10),
)
rates = st.builds(
    KernelRates,
    weights=st.fixed_dictionaries({n: st.floats(1e9, 1e13) for n in WEIGHT_FORMATS}),
    kv=st.fixed_dictionaries({n: st.floats(1e9, 1e13) for n in KV_FORMATS}),
)


@given(loads, rates)
def test_no_change_has_no_effect(load: Load, measured: KernelRates) -> None:
    effect = predict(load, measured, weights=load.precision.weights, kv_cache=load.precision.kv_cache)
    assert effect.sessions_ratio == pytest.approx(1)
    assert effect.step_ratio == pytest.approx(1)


@given(loads, rates, st.sampled_from(sorted(KV_FORMATS)))
def test_what_a_step_takes_beyond_memory_stays(load: Load, measured: KernelRates, kv_cache: str) -> None:
    memory_alone = predict(replace(load, step_seconds=None), measured, kv_cache=kv_cache).step_ratio
    measured_step = predict(load, measured, kv_cache=kv_cache).step_ratio
    assert memory_alone is not None
    assert measured_step is not None
    low, high = sorted((1.0, memory_alone))
    assert low - 1e-9 <= measured_step <= high + 1e-9


@given(loads, st.sampled_from(sorted(KV_FORMATS)))
def test_room_follows_bytes_and_unmeasured_speed_is_not_claimed(load: Load, kv_cache: str) -> None:
    effect = predict(load, KernelRates(), kv_cache=kv_cache)
    assert effect.step_ratio is None
    changed = replace(load, precision=replace(load.precision, kv_cache=kv_cache))
    assert effect.sessions_ratio == pytest.approx(load.session_bytes / changed.session_bytes)


@given(loads, rates)
def test_no_advice_makes_a_bandwidth_bound_step_slower(load: Load, measured: KernelRates) -> None:
    for advice in recommend(verdict_of(Wall.BANDWIDTH), load, measured):
        if advice.lever in ("kvCache", "weights"):
            assert advice.effect
            assert advice.effect.step_ratio is not None
            assert advice.effect.step_ratio < 1


def test_bytes_and_operations_are_reckoned_where_the_engine_does_not_count_them() -> None:
    counters = replace(BUSY, running=4, generated_tokens=400, prompt_tokens=0, steps=None)
    found = with_model(counters, SHORT)
    assert found.read_bytes == 100 * SHORT.read_bytes
    assert found.flops == 400 * LLAMA_8B.token_flops
    told = with_model(replace(counters, read_bytes=1.0, flops=2.0), SHORT)
    assert (told.read_bytes, told.flops) == (1.0, 2.0)
