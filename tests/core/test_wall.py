"""The verdict: each wall from its figures, and what holds for every counter."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.wall import Basis, Counters, Machine, Wall, classify, engine_named, pages_full_at, pooled

MACHINE = Machine(bytes_per_second=1e10, flops_per_second=1e11)
QUIET = Counters(
    seconds=10,
    running=8,
    waiting=0,
    waiting_for_room=0,
    kv_used=0.5,
    prompt_tokens=100,
    generated_tokens=800,
    busy_seconds=9,
    read_bytes=2e10,
    flops=1e10,
)
CROWDED: dict[str, Any] = {"waiting_for_room": 0.8, "waiting": 5, "kv_used": 0.97}
READING: dict[str, Any] = {"read_bytes": 7e10}  # 0.78 of what 9 busy seconds can read
COMPUTING: dict[str, Any] = {"flops": 6e11}  # 0.67 of what they can compute


@pytest.mark.parametrize(
    ("change", "wall"),
    [
        (CROWDED, Wall.CAPACITY),
        ({"preemptions": 3, "kv_used": 0.95}, Wall.CAPACITY),
        ({"refusals": 3, "kv_used": 0.95}, Wall.CAPACITY),
        (READING, Wall.BANDWIDTH),
        (CROWDED | READING, Wall.BOTH),
        (COMPUTING, Wall.COMPUTE),
        (READING | {"flops": 8.5e11}, Wall.COMPUTE),  # both over: the larger share decides
        (READING | {"flops": 5e11}, Wall.BANDWIDTH),
        ({}, Wall.HOST),
        ({"waiting": 4}, Wall.HOST),
        ({"busy_seconds": 1, "read_bytes": 1e9, "flops": 1e9}, Wall.IDLE),
        ({"kv_used": 0.99}, Wall.HOST),  # full pages that nobody waits for are no wall
        ({"waiting_for_room": 0.8, "kv_used": 0.5}, Wall.CAPACITY),  # few long sessions: each needs more than is free
        ({"waiting_for_room": 0.8, "kv_used": None}, Wall.CAPACITY),
        ({"waiting_for_room": 0.8, "kv_used": 0.8} | READING, Wall.BOTH),
        ({"preemptions": 3, "kv_used": 0.8}, Wall.HOST),
        ({"read_bytes": None}, Wall.UNKNOWN),
        ({"kv_used": None}, Wall.HOST),  # nobody waits and none is preempted: how full the pages are decides nothing
        ({"kv_used": None, "preemptions": 3}, Wall.UNKNOWN),
        ({"busy_seconds": None}, Wall.UNKNOWN),
        ({"busy_seconds": None, "running_share": 1.0}, Wall.HOST),
        ({"busy_seconds": None, "running_share": 0.1}, Wall.IDLE),
        # Over the whole window 0.4 of the bandwidth, in the six tenths of it in which something ran 0.67.
        ({"busy_seconds": None, "running_share": 0.6, "read_bytes": 4e10}, Wall.UNKNOWN),
        ({"memory_active": 0.55, "read_bytes": None}, Wall.BANDWIDTH),
        ({"memory_active": 0.2, **READING}, Wall.HOST),  # the device's counter overrules the model
        ({"tensor_active": 0.9}, Wall.COMPUTE),
    ],
)
def test_each_wall_from_its_figures(change: dict[str, Any], wall: Wall) -> None:
    assert classify(replace(QUIET, **change), MACHINE).wall is wall


def test_a_still_worker_is_idle_whatever_is_not_told() -> None:
    assert classify(Counters(seconds=10, running=0, waiting=0)).wall is Wall.IDLE


def test_the_verdict_says_what_is_missing() -> None:
    verdict = classify(replace(QUIET, kv_used=None, preemptions=3))
    assert verdict.wall is Wall.UNKNOWN
    assert verdict.says == "what would decide it is not told: kv_used, bandwidth_used, compute_used"
    assert [m.figure for m in verdict.missing] == ["kv_used", "bandwidth_used", "compute_used"]
    assert "--device-bandwidth BYTES" in verdict.missing[1].bring
    assert not classify(QUIET, MACHINE).missing


@pytest.mark.parametrize(
    ("change", "figure", "bring"),
    [
        ({"read_bytes": None}, "bandwidth_used", "--enable-mfu-metrics"),
        ({"flops": None}, "compute_used", "--enable-mfu-metrics"),
        ({"waiting_for_room": None, "kv_used": None}, "waiting_for_room", "--kv-used SHARE"),
        ({"busy_seconds": None, "running_share": 0.6, "read_bytes": 4e10}, "busy", "--interval 60"),
    ],
)
def test_a_missing_figure_is_brought_by_one_flag_of_its_engine(change: dict[str, Any], figure: str, bring: str) -> None:
    [missing] = classify(replace(QUIET, **change), MACHINE, engine_named("vllm")).missing
    assert missing.figure == figure
    assert bring in missing.bring


def test_prefill_is_named_at_a_compute_wall_where_prompts_are_what_is_computed() -> None:
    prompts = COMPUTING | {"prompt_tokens": 100_000}
    assert "it is prefill that takes it" in classify(replace(QUIET, **prompts), MACHINE).says
    found = prompts | {"prefix_query_tokens": 100_000, "prefix_hit_tokens": 99_950}
    assert "prefill" not in classify(replace(QUIET, **found), MACHINE).says


def test_capacity_says_what_stands_beside_it() -> None:
    assert "may be Both" in classify(replace(QUIET, **CROWDED)).says
    assert "not more tokens a second" in classify(replace(QUIET, **CROWDED, **COMPUTING), MACHINE).says
    assert "limit on sessions" in classify(replace(QUIET, waiting=4), MACHINE).says


def test_capacity_says_that_free_pages_are_too_few() -> None:
    assert (
        "more than the 20% that are free" in classify(replace(QUIET, waiting_for_room=0.8, kv_used=0.8), MACHINE).says
    )
    assert "that are free" not in classify(replace(QUIET, **CROWDED), MACHINE).says


@given(st.integers(1, 1000), st.floats(0.01, 1), st.floats(0.01, 1))
def test_pages_are_full_where_one_more_of_the_mean_size_does_not_fit(
    running: int, session: float, spare: float
) -> None:
    pool = session * running + spare
    used = session * running / pool
    if used < 0.9 and abs(spare - session) > 1e-6:
        assert (used >= pages_full_at(running)) is (spare < session)
    assert pages_full_at(running) <= 0.9
    assert pages_full_at(0) == 0.9


def test_host_says_that_others_take_the_cpu() -> None:
    assert "had a CPU for 20% of its steps" in classify(replace(QUIET, step_cpu_seconds=1.8), MACHINE).says
    assert "had a CPU" not in classify(replace(QUIET, step_cpu_seconds=8.5), MACHINE).says


def test_the_host_is_not_blamed_for_what_kernels_take() -> None:
    told = classify(replace(QUIET, step_kernel_seconds=8.0), MACHINE)
    assert told.wall is Wall.HOST
    assert "89% of a step is inside kernels" in told.says
    assert "launches" not in told.says
    assert "launches" in classify(replace(QUIET, step_kernel_seconds=1.0), MACHINE).says
    assert "launches" in classify(QUIET, MACHINE).says


def test_evidence_shows_intensity_against_the_machine_balance() -> None:
    verdict = classify(replace(QUIET, **READING), MACHINE)
    intensity = next(f for f in verdict.evidence if f.name == "intensity_flops_per_byte")
    assert intensity.value == pytest.approx(1 / 7)
    assert intensity.threshold == 10
    assert not intensity.is_over
    bandwidth = next(f for f in verdict.evidence if f.name == "bandwidth_used")
    assert bandwidth.value == pytest.approx(7 / 9)
    assert (bandwidth.threshold, bandwidth.is_over) == (0.5, True)


share = st.floats(0, 1)
some = st.just(0.0) | st.floats(1, 1e14)  # bytes or operations: half of the least float would be none
counters = st.builds(
    Counters,
    seconds=st.floats(1, 1000),
    running=st.floats(0, 500),
    waiting=st.floats(0, 500),
    waiting_for_room=st.none() | share,
    kv_used=st.none() | share,
    preemptions=st.floats(0, 1000),
    refusals=st.floats(0, 1000),
    prompt_tokens=st.floats(0, 1e6),
    generated_tokens=st.floats(0, 1e6),
    busy_seconds=st.none() | st.floats(0.1, 1000),
    read_bytes=st.none() | some,
    flops=st.none() | some,
    memory_active=st.none() | share,
    tensor_active=st.none() | share,
)


@given(counters)
def test_every_verdict_follows_from_the_figures_it_shows(found: Counters) -> None:
    verdict = classify(found, MACHINE)
    over = {f.name for f in verdict.evidence if f.is_over}
    short = "waiting_for_room" in over or (
        "kv_used" in over and bool(over & {"preemptions_per_second", "refusals_per_second"})
    )
    assert short is (verdict.wall in (Wall.CAPACITY, Wall.BOTH)) or found.is_still
    if verdict.wall in (Wall.BANDWIDTH, Wall.BOTH):
        assert "bandwidth_used" in over
    if verdict.wall is Wall.COMPUTE:
        assert "compute_used" in over
    if verdict.wall in (Wall.HOST, Wall.IDLE):
        assert found.is_still or not over & {"bandwidth_used", "compute_used"}
    if verdict.wall is Wall.HOST:
        assert None not in (found.waiting_for_room, verdict.value("bandwidth_used"), found.busy_share)
    assert (verdict.wall is Wall.UNKNOWN) == bool(verdict.missing)
    assert (verdict.basis is Basis.COUNTER) == (found.memory_active is not None)


@given(counters, st.floats(0.1, 10))
def test_the_length_of_the_window_does_not_matter(found: Counters, times: float) -> None:
    totals = (
        "seconds",
        "preemptions",
        "refusals",
        "prompt_tokens",
        "generated_tokens",
        "busy_seconds",
        "read_bytes",
        "flops",
    )
    longer = replace(found, **{n: getattr(found, n) * times for n in totals if getattr(found, n) is not None})
    for before, after in zip(classify(found, MACHINE).evidence, classify(longer, MACHINE).evidence, strict=True):
        assert after.value == (None if before.value is None else pytest.approx(before.value))


@given(counters, st.none() | share)
def test_who_waits_for_room_is_at_a_capacity_wall_however_full_the_pages_are(
    found: Counters, used: float | None
) -> None:
    before = classify(found, MACHINE).wall
    after = classify(replace(found, waiting_for_room=1.0, kv_used=used), MACHINE).wall
    assert after in (Wall.CAPACITY, Wall.BOTH) or found.is_still
    if before in (Wall.BANDWIDTH, Wall.BOTH) and not found.is_still:
        assert after is Wall.BOTH


@given(st.lists(counters, min_size=1, max_size=4))
def test_a_pool_of_equal_workers_has_their_verdict(found: list[Counters]) -> None:
    one = replace(found[0], preemptions=0, refusals=0)
    assert classify(pooled([one] * 3), MACHINE).wall is classify(one, MACHINE).wall or one.waiting < 1
    together = pooled(found)
    assert together.running == pytest.approx(sum(c.running for c in found))
    told = [c.kv_used for c in found if c.kv_used is not None]
    assert together.kv_used == (pytest.approx(sum(told) / len(told)) if told else None)


def test_a_window_has_a_length() -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        Counters(seconds=0, running=0, waiting=0)
