"""The straight path: Submit, frames, Drain, Offer, Push, Prepare, TransferOwnership, Activate, frames on the target, Seal."""

import pytest

from kvroll_gateway.sessions.phases import Note
from tests.doubles.engine_double import EngineDouble, undisturbed
from tests.wire.conftest import MakeWorker
from tests.wire.stream_gateway import StreamGateway

PROMPT = list(range(1, 101))


@pytest.mark.parametrize("allow", [["Exact"], ["Replay"]])
async def test_a_moved_session_goes_on_as_if_undisturbed(
    make_worker: MakeWorker, gateway: StreamGateway, allow: list[str]
) -> None:
    source, target = await make_worker(EngineDouble(step_seconds=0.002)), await make_worker()
    for worker in (source, target):
        await gateway.attach(worker.address)
    session = gateway.submit(source.instance_id, "s", PROMPT, max_tokens=200, seed=3)
    await gateway.until(lambda: session.log.next_index >= 20)
    await source.admit(False)
    await source.drain(target.target(), allow=allow)

    [tokens] = await gateway.finished("s")

    assert tokens == undisturbed(PROMPT, 200, seed=3)
    assert session.owner == target.instance_id
    assert [n for n in gateway.notes if n.what == "moved"] == [Note("moved", allow[0])]
    await source.drained()
    receipt = await source.seal()
    counters = receipt.counters
    assert (counters.held, counters.exact + counters.replayed, counters.lost, counters.remaining) == (1, 1, 0, 0)
    source.engine.check_integrity()
    assert source.engine.stats().pages_free == source.engine.num_pages


@pytest.mark.parametrize("allow", [["Exact"], ["Replay"]])
async def test_moves_that_are_under_way_at_once_are_spread_over_the_targets(
    make_worker: MakeWorker, gateway: StreamGateway, allow: list[str]
) -> None:
    """A report of how full a target is tells nothing of what is on its way there: three replays at once would queue at one engine."""
    source = await make_worker(EngineDouble(step_seconds=0.002))
    targets = [await make_worker() for _ in range(3)]
    for worker in (source, *targets):
        await gateway.attach(worker.address)
    sessions = [gateway.submit(source.instance_id, f"s{n}", PROMPT, max_tokens=400, seed=n) for n in range(3)]
    for session in sessions:
        await gateway.until(lambda session=session: session.log.next_index >= 5)  # type: ignore[misc]
    await source.admit(False)
    await source.drain(*(target.target() for target in targets), allow=allow, parallel=3)
    await gateway.finished("s0", "s1", "s2")
    assert {session.owner for session in sessions} == {target.instance_id for target in targets}


async def test_the_session_that_has_longest_to_go_moves_first(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    source, target = await make_worker(EngineDouble(step_seconds=0.01)), await make_worker()
    for worker in (source, target):
        await gateway.attach(worker.address)
    lengths = {"short": 300, "long": 800, "middle": 500}
    sessions = {name: gateway.submit(source.instance_id, name, PROMPT, max_tokens=n) for name, n in lengths.items()}
    for session in sessions.values():
        await gateway.until(lambda session=session: session.log.next_index >= 5)  # type: ignore[misc]
    await source.admit(False)
    await source.drain(target.target(), allow=["Exact"], parallel=1)
    await gateway.until(lambda: any(session.owner == target.instance_id for session in sessions.values()))
    assert sessions["long"].owner == target.instance_id
    assert sessions["short"].owner == sessions["middle"].owner == source.instance_id
