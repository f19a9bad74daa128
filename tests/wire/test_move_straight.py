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
