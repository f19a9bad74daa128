"""What the wall bench writes, from judged windows: its keys, which others read, and when it is a failure."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from kvroll_bench.wall_load import LOADS, MAX_MODEL_LEN, POOL_PAGES, ROOM_SECONDS, Client, Load, is_there, under
from kvroll_bench.wall_report import Applied, advice_summary, by_cpu_time, faults, wall_summary, was_taken
from kvroll_core.budget import pages_for
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.wall import Advice, Counters, Effect, Judged, Machine, Sample, Wall, classify

MACHINE = Machine(1e10, 5e10)
READING = Counters(
    seconds=4,
    running=1,
    waiting=0,
    waiting_for_room=0,
    kv_used=0.1,
    generated_tokens=80,
    steps=80,
    busy_seconds=3.9,
    step_cpu_seconds=3.8,
    read_bytes=3.4e10,
    flops=2e10,
)


def judged(**change: Any) -> Judged:
    counters = replace(READING, **change)
    return Judged(counters, MACHINE, None, classify(counters, MACHINE), ())


def test_a_wall_counts_the_runs_that_named_it() -> None:
    taken = judged(read_bytes=1e10, step_cpu_seconds=1.3)
    found = wall_summary(Wall.BANDWIDTH, [judged(), judged(), taken], 2)
    assert {k: v for k, v in found.items() if k != "figures"} == {
        "wall": "Bandwidth",
        "runs": 3,
        "correct": 2,
        "correct_by_cpu_time": 3,
        "windows_taken_by_others": 2,
    }
    assert [f["wall"] for f in found["figures"]] == ["Bandwidth", "Bandwidth", "Host"]
    assert found["figures"][2]["bandwidth_used"] == pytest.approx(1e10 / 3.9 / 1e10)
    assert (was_taken(taken), was_taken(judged())) == (True, False)


def test_cpu_time_makes_no_busy_worker_idle() -> None:
    # A tenth of the CPU for all of the window: by that time alone it would seem to rest for nine tenths.
    assert by_cpu_time(judged(step_cpu_seconds=0.4, read_bytes=3.4e9, flops=1e9)) is Wall.BANDWIDTH
    assert by_cpu_time(judged(step_cpu_seconds=0.4, read_bytes=1e9, flops=1e9)) is Wall.HOST


@pytest.mark.parametrize(("after", "fits"), [(40, True), (52, True), (56, False), (90, False)])
def test_a_step_is_held_against_its_prediction(after: int, fits: bool) -> None:
    advice = Advice("weights", "int8", "", Effect(1.0, 0.5))
    then = judged(steps=80, busy_seconds=3.9 * after / 80, step_cpu_seconds=3.8 * after / 80)
    found = advice_summary(Applied(Wall.BANDWIDTH, advice, [judged()] * 3, [then]))
    assert (found["figure"], found["to"], found["predicted_ratio"]) == ("step_seconds", "int8", 0.5)
    assert found["measured_ratio"] == pytest.approx(after / 80)
    assert found["measured_ratio_by_cpu_time"] == pytest.approx(after / 80)
    assert (found["within_30_percent"], found["same_direction"]) == (fits, after < 80)


def test_sessions_are_held_against_theirs_and_no_advice_is_a_fault() -> None:
    advice = Advice("kvCache", "int8", "", Effect(1.88, None))
    found = advice_summary(Applied(Wall.CAPACITY, advice, [judged(running=28)], [judged(running=50)]))
    assert (found["figure"], found["within_30_percent"], found["same_direction"]) == ("sessions", True, True)
    rows = [wall_summary(Wall.BANDWIDTH, [judged()] * 9 + [judged(read_bytes=0)], 0)]
    none = advice_summary(Applied(Wall.CAPACITY, None, [], []))
    assert faults({"walls": rows, "advice": [found]}) == []
    assert faults({"walls": rows, "advice": [none]}) == [
        "Capacity: no change was advised, or its worker could not be brought there"
    ]
    assert faults({"walls": [wall_summary(Wall.IDLE, [], 0)], "advice": []})[0].startswith("Idle: named in 0 of 0")
    rows = [wall_summary(Wall.BANDWIDTH, [judged()] * 4 + [judged(read_bytes=0)], 0)]
    assert "named in 4 of 5 runs" in faults({"walls": rows, "advice": []})[0]
    far = advice_summary(Applied(Wall.CAPACITY, advice, [judged(running=28)], [judged(running=30)]))
    [said] = faults({"walls": [], "advice": [far]})
    assert said == "Capacity: kvCache int8 was to make sessions 1.88 x, made it 1.07 x"


def sample(**totals: float) -> Sample:
    names = {"steps": "kvroll_steps_total", "generated": "vllm:generation_tokens_total", "room": ROOM_SECONDS}
    names |= {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting"}
    return Sample(0.0, {name: {(): totals.get(word, 0.0)} for word, name in names.items()})


@pytest.mark.parametrize(
    ("wall", "near", "there"),
    [
        (Wall.IDLE, {"running": 1}, {}),
        (Wall.BANDWIDTH, {"generated": 9}, {"generated": 10}),
        (Wall.COMPUTE, {"steps": 3}, {"steps": 4}),
        (Wall.BOTH, {"generated": 20, "running": 1, "waiting": 1}, {"generated": 20, "running": 1, "waiting": 1, "room": 1}),
        (Wall.CAPACITY, {"generated": 50, "room": 1}, {"generated": 50, "room": 1, "waiting": 3}),
    ],
)  # fmt: skip
def test_a_load_is_there_when_the_worker_says_so(wall: Wall, near: dict[str, float], there: dict[str, float]) -> None:
    assert wall in LOADS
    assert not is_there(wall, sample(), sample(**near))
    assert is_there(wall, sample(), sample(**there))


def test_no_load_brings_about_what_is_no_wall() -> None:
    with pytest.raises(ValueError, match="expected one of Idle"):
        is_there(Wall.HOST, sample(), sample())


class Recorder(Client):
    """A client of nobody: keeps what it was asked."""

    def __init__(self, refuse: int = 0) -> None:
        self.asked: list[tuple[list[int], int]] = []
        self.refuse = refuse

    async def ask(self, prompt: list[int], answer: int, began: Callable[[], None] = lambda: None) -> None:
        if len(prompt) == self.refuse:
            raise ValueError("refused")
        self.asked.append((prompt, answer))
        began()
        await asyncio.sleep(0.001)


def run(work: Coroutine[Any, Any, None]) -> None:
    """On a loop of its own: asyncio.run would replace the one that pytest-asyncio keeps, unclosed."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


async def held(load: Load, client: Client, seconds: float) -> None:
    """The load for that long."""
    async with under(load, client, 0):
        await asyncio.sleep(seconds)


@pytest.mark.parametrize("wall", list(LOADS))
def test_prompts_share_no_page_unless_they_are_asked_again(wall: Wall) -> None:
    load, client = LOADS[wall], Recorder()
    run(held(load, client, 0.02))
    prompts = {tuple(prompt) for prompt, _ in client.asked}
    assert len({prompt[:PAGE_TOKENS] for prompt in prompts}) == len(prompts)
    if load.same:
        assert len(prompts) == load.clients + bool(load.waiting)
    assert all(pages_for(len(p) + a) <= POOL_PAGES and len(p) + a <= MAX_MODEL_LEN for p, a in client.asked)


def test_a_refused_request_ends_the_load_at_once() -> None:
    with pytest.raises(ExceptionGroup) as found:
        run(held(LOADS[Wall.BOTH], Recorder(refuse=LOADS[Wall.BOTH].waiting), 60))
    assert found.group_contains(ValueError, match="refused")
