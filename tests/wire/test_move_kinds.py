"""What each kind of move promises, and what it costs on the wire."""

import time
from functools import partial

import pytest

from kvroll_gateway.sessions.phases import OwnershipPhase
from kvroll_worker.request import Sampling, SessionState, TokenEvent
from tests.doubles.engine_double import EngineDouble, undisturbed
from tests.wire.conftest import MakeWorker, RunningWorker
from tests.wire.stream_gateway import StreamGateway

PROMPT = list(range(1, 101))


def continued(prompt: list[int], outputs: list[int], num_tokens: int, seed: int, **engine: str) -> list[int]:
    """What an engine of that precision generates after this history."""
    double = EngineDouble(**engine)  # type: ignore[arg-type]
    double.submit(SessionState("x", "m", list(prompt), list(outputs), Sampling(max_tokens=num_tokens, seed=seed)))
    out = list(outputs)
    while double.has_work():
        out += [e.token_id for e in double.step() if isinstance(e, TokenEvent)]
    return out


async def start(gateway: StreamGateway, *workers: RunningWorker) -> None:
    for worker in workers:
        await gateway.attach(worker.address)


async def test_convert_goes_on_in_the_other_format_from_transcoded_pages(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    source, target = (
        await make_worker(EngineDouble(step_seconds=0.002)),
        await make_worker(EngineDouble(kv_cache="int8")),
    )
    await start(gateway, source, target)
    session = gateway.submit(source.instance_id, "s", PROMPT, max_tokens=150, seed=1)
    await gateway.until(lambda: session.log.next_index >= 10)
    await source.admit(False)
    await source.drain(target.target())
    [tokens] = await gateway.finished("s")
    [begin, then] = session.log.last.record.precision_epochs if session.log.last else []
    assert (begin.kv_cache, begin.mode, then.kv_cache, then.mode) == ("bf16", "Start", "int8", "Convert")
    moved_at = then.from_token
    assert tokens[:moved_at] == undisturbed(PROMPT, 150, seed=1)[:moved_at]
    assert tokens == continued(PROMPT, tokens[:moved_at], 150, 1, kv_cache="int8")
    assert (await source.drained()).converted == 1
    assert target.engine.stats().prompt_tokens_total < 100, "the target computed what should have come as pages"


async def test_other_weights_go_exact_to_the_same_revision_first_and_replay_at_the_end(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    source, same = (
        await make_worker(EngineDouble(step_seconds=0.002)),
        await make_worker(EngineDouble(step_seconds=0.002)),
    )
    new = await make_worker(EngineDouble(weights="int8"))
    await start(gateway, source, same, new)
    session = gateway.submit(source.instance_id, "s", PROMPT, max_tokens=300)
    await gateway.until(lambda: session.log.next_index >= 10)
    await source.admit(False)
    await source.drain(new.target(), same.target(same_revision=True))
    await gateway.until(lambda: session.owner == same.instance_id)
    await same.admit(False)
    other = await make_worker(
        name="another"
    )  # of the same revision too, but the session was moved to such a one before
    await gateway.attach(other.address)
    await same.drain(other.target(same_revision=True), new.target())
    [tokens] = await gateway.finished("s")
    assert session.owner == new.instance_id
    modes = [e.mode for e in session.log.last.record.precision_epochs] if session.log.last else []
    assert modes == ["Start", "Exact", "Replay"]
    assert len(tokens) == 300


async def test_ten_sessions_that_share_a_prefix_cross_the_wire_once(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    source, target = (
        await make_worker(EngineDouble(step_seconds=0.002)),
        await make_worker(EngineDouble(step_seconds=0.002)),
    )
    await start(gateway, source, target)
    shared = [1 + i % 200 for i in range(32 * 12)]
    names = [f"s{i}" for i in range(10)]
    for i, name in enumerate(names):
        gateway.submit(source.instance_id, name, [*shared, 100 + i], max_tokens=300, seed=i)
    await gateway.until(lambda: all(gateway.sessions[n].log.next_index >= 5 for n in names))
    await source.admit(False)
    await source.drain(target.target(), allow=["Exact"], parallel=10)
    outputs = await gateway.finished(*names, seconds=60)
    counters = await source.drained()
    assert counters.exact == 10
    assert counters.wire_bytes <= 1.1 * counters.unique_bytes
    assert counters.unique_bytes < 0.5 * 10 * 12 * source.engine.page_bytes
    for i, name in enumerate(names):
        assert outputs[i] == undisturbed([*shared, 100 + i], 300, seed=i), name
    target.engine.check_integrity()


def _owned(gateway: StreamGateway, worker: RunningWorker, wanted: int) -> bool:
    return sum(session.owner == worker.instance_id for session in gateway.sessions.values()) == wanted


async def test_pages_that_the_target_held_already_did_not_move(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    first, second, target = [await make_worker(EngineDouble(step_seconds=0.005)) for _ in range(3)]
    await start(gateway, first, second, target)
    shared = [1 + i % 200 for i in range(32 * 12)]
    for source in (first, second):
        gateway.submit(source.instance_id, source.instance_id, [*shared, 100], max_tokens=300)
    await gateway.until(lambda: all(session.log.next_index >= 5 for session in gateway.sessions.values()))
    for moved, source in enumerate((first, second), start=1):
        await source.admit(False)
        await source.drain(target.target(), allow=["Exact"])
        await gateway.until(partial(_owned, gateway, target, moved))
    counters = await second.drained()
    assert 0 < counters.unique_bytes <= counters.wire_bytes < 12 * second.engine.page_bytes


async def test_queued_and_prefilling_sessions_move_too(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    slow = EngineDouble(step_seconds=0.05, chunk=32, num_pages=16)
    source, target = await make_worker(slow), await make_worker()
    await start(gateway, source, target)
    long, waiting = [1 + i % 200 for i in range(400)], [7] * 200
    gateway.submit(source.instance_id, "long", long, max_tokens=40)
    gateway.submit(source.instance_id, "waiting", waiting, max_tokens=40)  # finds no pages beside the first
    await gateway.until(lambda: gateway.sessions["waiting"].phase is OwnershipPhase.RUNNING)
    await source.admit(False)
    await source.drain(target.target(), allow=["Exact"])
    outputs = await gateway.finished("long", "waiting")
    assert outputs == [undisturbed(long, 40), undisturbed(waiting, 40)]
    assert (await source.drained()).exact == 2


async def test_a_reproducible_session_takes_no_lossy_way(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    source, target = (
        await make_worker(EngineDouble(step_seconds=0.001)),
        await make_worker(EngineDouble(kv_cache="int8")),
    )
    await start(gateway, source, target)
    session = gateway.submit(source.instance_id, "s", PROMPT, max_tokens=100, reproducible=True)
    await gateway.until(lambda: session.log.next_index >= 5)
    await source.admit(False)
    await source.drain(target.target())
    [tokens] = await gateway.finished("s")
    assert session.owner == source.instance_id
    assert tokens == undisturbed(PROMPT, 100)
    await gateway.until(lambda: not source.host.ledger.sessions)
    assert (await source.drained()).finished == 1


@pytest.mark.slow
async def test_what_ends_before_a_move_could_finishes_here(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    source, target = (
        await make_worker(EngineDouble(step_seconds=0.03, chunk=8)),
        await make_worker(EngineDouble(weights="int8")),
    )
    await start(gateway, source, target)
    session = gateway.submit(source.instance_id, "s", [1 + i % 200 for i in range(900)], max_tokens=20)
    await gateway.until(lambda: session.log.next_index >= 2)
    await source.admit(False)
    await source.drain(target.target())
    await gateway.finished("s")
    await gateway.until(lambda: not source.host.ledger.sessions)
    assert (await source.drained()).finished_soon == 1
    assert session.owner == source.instance_id


@pytest.mark.slow
async def test_bytes_per_second_holds_over_the_wire(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    """Several sessions at once share one bucket: together they take no less time than their bytes need at the rate."""
    source, target = (
        await make_worker(EngineDouble(step_seconds=0.02)),
        await make_worker(EngineDouble(kv_cache="int8")),
    )
    await start(gateway, source, target)
    sessions = [
        gateway.submit(source.instance_id, f"s{i}", [i + 1, *PROMPT * 6], max_tokens=1000, seed=i) for i in range(4)
    ]
    await gateway.until(lambda: all(session.log.next_index >= 10 for session in sessions))
    await source.admit(False)
    began = time.monotonic()
    rate = 40 * target.engine.stats().page_bytes
    await source.drain(target.target(), bytes_per_second=rate)
    await gateway.until(lambda: all(session.owner == target.instance_id for session in sessions), seconds=30)
    seconds = time.monotonic() - began
    counters = (await source.report()).drain
    assert counters.converted == 4
    # The bucket starts full enough for one chunk, so the last chunk begins at (bytes - chunk) / rate.
    assert seconds >= (counters.wire_bytes - target.engine.stats().page_bytes) / rate
    assert counters.wire_bytes >= 72 * target.engine.stats().page_bytes
