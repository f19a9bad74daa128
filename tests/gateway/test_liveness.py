"""When a worker counts as lost: what is silent, what is stuck, and what is only slow."""

import asyncio
import time

import pytest

from kvroll.v1 import inference_pb2 as inf
from kvroll_gateway.routing.liveness import Hearing, Patience
from tests.gateway.conftest import StartBench, read_events
from tests.gateway.fake_session import MODEL, Script
from tests.gateway.test_faults import delivered, owner_of, streaming, whole


def beat(busy: float, longest: float) -> inf.Heartbeat:
    return inf.Heartbeat(interval_seconds=0.1, busy_seconds=busy, longest_step_seconds=longest)


@pytest.mark.parametrize(
    ("busy", "longest", "stuck"),
    [
        (0.0, 0.1, False),  # idle
        (5.9, 0.1, False),
        (6.1, 0.1, True),
        (30.0, 9.0, False),  # a machine whose steps are so long
        (36.1, 9.0, True),
        (30.0, 0.0, False),  # its first step
        (36.1, 0.0, True),
    ],
)
def test_an_engine_is_stuck_in_what_is_longer_than_its_steps_are(busy: float, longest: float, stuck: bool) -> None:
    assert Patience().is_stuck(beat(busy, longest)) is stuck


def test_silence_is_counted_from_the_last_word() -> None:
    hearing = Hearing(100.0, 0.25)
    assert hearing.silent_seconds(100.25) == pytest.approx(0.25)
    hearing.heard(100.4)
    assert hearing.silent_seconds(100.5) == pytest.approx(0.1)


def test_a_gateway_that_stood_still_blames_nobody_for_it() -> None:
    hearing = Hearing(100.0, 0.25)
    hearing.silent_seconds(100.25)
    assert hearing.silent_seconds(160.0) == pytest.approx(0.5)
    for tick in range(1, 9):
        silent = hearing.silent_seconds(160.0 + tick / 4)
    assert silent == pytest.approx(2.5)


@pytest.mark.parametrize("kind", ["silent", "stuck"])
@pytest.mark.slow
async def test_a_mute_worker_is_replaced_and_what_it_says_later_is_not_heard(start: StartBench, kind: str) -> None:
    bench = await start(Script(0.01, beat=beat(0, 0.01)), Script(0.01, beat=beat(0, 0.01)), worker_silent_seconds=0.6)
    stop = asyncio.Event()

    async def beating() -> None:
        while not stop.is_set():
            for number, worker in enumerate(bench.workers):
                worker.script.beat = beat(time.monotonic() - since if number in mute else 0.0, 0.01)
                if number not in mute or kind == "stuck":
                    worker.send(heartbeat=worker.script.beat)
            await asyncio.sleep(0.05)

    mute: set[int] = set()
    since = 0.0
    beats = asyncio.create_task(beating())
    stream = streaming(bench)
    session_id = await delivered(bench, 5)
    first = owner_of(bench, session_id)
    since = time.monotonic()
    mute.add(first)
    copy = bench.workers[first].copies[session_id]
    copy.frozen = True  # its engine stands still
    await whole(stream)
    assert bench.metric("kvroll_gateway_workers_lost_total", reason=kind) >= 1
    assert bench.metric("kvroll_gateway_replays_total") == 1
    mute.clear()
    copy.frozen = False  # it thaws, and goes on with what it was doing
    bench.workers[first]._spawn(bench.workers[first]._generate(copy))
    await bench.until(lambda: not bench.workers[first].copies)  # until it hears that the session is elsewhere
    stop.set()
    await beats
    assert bench.metric("kvroll_gateway_tokens_delivered_total", model=MODEL) == 40


@pytest.mark.slow
async def test_an_idle_worker_is_not_mute(start: StartBench) -> None:
    bench = await start(Script(), worker_silent_seconds=0.3)
    await asyncio.sleep(0.8)
    body = {"model": MODEL, "prompt": [1], "max_tokens": 3, "stream": True}
    assert read_events((await bench.http.post("/v1/completions", json=body)).text)[-1].data == "[DONE]"
    assert bench.metric("kvroll_gateway_workers") == 1
