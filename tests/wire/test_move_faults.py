"""Moves that meet a dead target, damaged bytes, a client that leaves, a gateway that is away: no session is lost, no page stays."""

import asyncio
import random

import grpc.aio
import pytest

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import session_pb2 as spb
from kvroll_gateway.sessions.phases import OwnershipPhase
from kvroll_worker.move import codec, manifest
from kvroll_worker.serve.moves import SessionService
from tests.doubles.engine_double import EngineDouble, undisturbed
from tests.wire.conftest import MakeWorker, RunningWorker
from tests.wire.stream_gateway import StreamGateway

pytestmark = pytest.mark.slow

PROMPT = [1 + i % 200 for i in range(300)]


async def begin(gateway: StreamGateway, source: RunningWorker, *targets: RunningWorker, max_tokens: int = 150) -> None:
    for worker in (source, *targets):
        await gateway.attach(worker.address)
    session = gateway.submit(source.instance_id, "s", PROMPT, max_tokens=max_tokens)
    await gateway.until(lambda: session.log.next_index >= 5)
    await source.admit(False)


def clean(worker: RunningWorker) -> bool:
    worker.engine.check_integrity()
    free: bool = worker.engine.stats().pages_free == worker.engine.num_pages
    return free and not worker.host.ledger.sessions and not len(worker.host.ledger.targets)


async def test_a_damaged_chunk_is_found_and_sent_again(
    make_worker: MakeWorker, gateway: StreamGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await make_worker(EngineDouble(step_seconds=0.002)), await make_worker()
    await begin(gateway, source, target)
    sent, real = [0], manifest.chunk_crc

    def once_wrong(data: bytes) -> int:
        sent[0] += 1
        return real(data) ^ (sent[0] == 2)

    monkeypatch.setattr(codec, "chunk_crc", once_wrong)
    await source.drain(target.target(), allow=["Exact"])
    [tokens] = await gateway.finished("s")
    assert tokens == undisturbed(PROMPT, 150)
    assert gateway.sessions["s"].owner == target.instance_id
    assert target.host.metrics.registry.get_sample_value("kvroll_checksum_failures_total") == 1


async def test_a_page_damaged_while_landing_is_found_by_reading_back(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    source, target = await make_worker(EngineDouble(step_seconds=0.002)), await make_worker()
    written = [0]

    def damage(data: bytes) -> bytes:
        written[0] += 1
        return bytes([data[0] ^ 1]) + data[1:] if written[0] == 3 else data

    target.engine.on_write = damage
    await begin(gateway, source, target)
    await source.drain(target.target(), allow=["Exact"])
    [tokens] = await gateway.finished("s")
    assert tokens == undisturbed(PROMPT, 150)
    assert gateway.sessions["s"].owner == target.instance_id


async def test_a_target_that_always_damages_pages_gets_no_session(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    source, bad, good = await make_worker(EngineDouble(step_seconds=0.004)), await make_worker(), await make_worker()
    bad.engine.on_write = lambda data: bytes(len(data))
    await begin(gateway, source, bad, good, max_tokens=300)
    await source.drain(bad.target(), good.target(), allow=["Exact"])
    [tokens] = await gateway.finished("s")
    assert tokens == undisturbed(PROMPT, 300)
    assert gateway.sessions["s"].owner == good.instance_id
    assert "did not verify" in (await source.report()).drain.last_error
    await gateway.until(lambda: clean(bad))


@pytest.mark.parametrize("call", ["Offer", "Push", "Prepare"])
async def test_a_target_that_dies_in_a_move_costs_nothing(
    make_worker: MakeWorker, gateway: StreamGateway, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    deaths: list[asyncio.Task[None]] = []

    async def die(*_: object) -> None:
        deaths.append(asyncio.create_task(target.server.stop(0)))
        await asyncio.sleep(10)

    monkeypatch.setattr(SessionService, call, die)
    source, target = await make_worker(EngineDouble(step_seconds=0.002)), await make_worker()
    await begin(gateway, source, target)
    await source.drain(target.target(), allow=["Exact"])
    [tokens] = await gateway.finished("s")
    assert tokens == undisturbed(PROMPT, 150)
    assert gateway.sessions["s"].owner == source.instance_id
    assert len(deaths) == 1
    await gateway.until(lambda: clean(source))


async def test_a_target_that_dies_before_it_is_active_gives_the_session_back(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    source, target = await make_worker(EngineDouble(step_seconds=0.002)), await make_worker()
    await begin(gateway, source, target)
    gateway.silenced.add("activate")
    await source.drain(target.target(), allow=["Exact"])
    session = gateway.sessions["s"]
    await gateway.until(lambda: session.phase is OwnershipPhase.TRANSFERRING)
    await target.server.stop(0)
    gateway.lost(target.instance_id, None)
    gateway.silenced.clear()
    [tokens] = await gateway.finished("s")
    assert tokens == undisturbed(PROMPT, 150)
    assert session.owner == source.instance_id
    assert session.epoch.step == 3, "RESUME raises the step above the one that the target was named"


async def test_in_commit_sent_the_source_waits_however_long(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    source, target = await make_worker(EngineDouble(step_seconds=0.002)), await make_worker()
    await begin(gateway, source, target)
    gateway.silenced |= {"activate", "transfer_answer"}
    await source.drain(target.target(), allow=["Exact"])
    await gateway.until(lambda: gateway.sessions["s"].phase is OwnershipPhase.TRANSFERRING)
    index = gateway.sessions["s"].log.next_index
    await asyncio.sleep(1.0)
    assert gateway.sessions["s"].log.next_index == index, "a source that asked must not decode"
    gateway.silenced.clear()
    [tokens] = await gateway.finished("s")
    assert tokens == undisturbed(PROMPT, 150)
    assert gateway.sessions["s"].owner == target.instance_id


async def test_the_gateways_stream_breaks_while_the_source_waits_for_the_answer(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    source, target = await make_worker(EngineDouble(step_seconds=0.002)), await make_worker()
    await begin(gateway, source, target)
    gateway.silenced.add("transfer_answer")
    await source.drain(target.target(), allow=["Exact"])
    await gateway.until(lambda: gateway.sessions["s"].owner == target.instance_id)
    await gateway.detach(source.instance_id)
    gateway.silenced.clear()
    await gateway.attach(source.address)
    [tokens] = await gateway.finished("s")
    assert tokens == undisturbed(PROMPT, 150)
    await gateway.until(lambda: clean(source))


async def test_frames_lost_with_the_stream_are_sent_again(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    source = await make_worker(EngineDouble(step_seconds=0.002))
    await begin(gateway, source)
    for _ in range(3):
        await gateway.detach(source.instance_id)
        await asyncio.sleep(0.03)
        await gateway.attach(source.address)
        await asyncio.sleep(0.02)
    [tokens] = await gateway.finished("s")
    assert tokens == undisturbed(PROMPT, 150)
    await gateway.until(lambda: clean(source))


async def test_clients_that_leave_during_moves_leave_no_page_behind(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    source, target = (
        await make_worker(EngineDouble(step_seconds=0.001)),
        await make_worker(EngineDouble(step_seconds=0.001)),
    )
    for worker in (source, target):
        await gateway.attach(worker.address)
    draw = random.Random(5)
    names = [f"s{i}" for i in range(24)]
    for name in names:
        gateway.submit(source.instance_id, name, PROMPT[: draw.randrange(40, 200)], max_tokens=draw.randrange(30, 200))
    await gateway.until(lambda: all(gateway.sessions[n].log.next_index >= 1 for n in names))
    await source.admit(False)
    await source.drain(target.target(), allow=["Exact"], parallel=8)
    for name in draw.sample(names, 18):
        await asyncio.sleep(draw.random() * 0.01)
        gateway.cancel(name)
    await gateway.until(lambda: all(gateway.sessions[n].settled for n in names), 40)
    await gateway.until(lambda: clean(source) and clean(target))
    for name in names:
        session = gateway.sessions[name]
        if session.phase is OwnershipPhase.FINISHED:
            prompt = list(session.template.token_ids)
            assert list(session.log.token_ids) == undisturbed(prompt, session.template.sampling.max_tokens)


async def test_a_source_that_falls_silent_frees_the_reservation(make_worker: MakeWorker) -> None:
    source, target = await make_worker(), await make_worker(reservation_lease_seconds=0.4)
    offer = spb.OfferRequest(
        migration_id="m", target_instance_id=target.instance_id, source=source.host.ref, allowed=[pb.VERDICT_KIND_EXACT]
    )
    offer.state.session_id, offer.state.model, offer.epoch.gateway_id = "s", "m", "g"
    offer.state.prompt_token_ids.extend(PROMPT)
    offer.state.sampling.max_tokens, offer.state.sampling.top_p = 5, 1.0
    report = await source.report()
    offer.descriptor.CopyFrom(report.descriptor)
    stub = source.host.peers.stub(codec.peer_from_wire(target.host.ref))
    answer = await stub.Offer(offer)
    assert answer.verdict.kind == 1
    assert await stub.Offer(offer) == answer, "a repeated Offer gets the kept answer"
    assert target.engine.stats().pages_free < target.engine.num_pages
    await asyncio.sleep(1.0)
    assert clean(target)
    assert (
        await stub.QueryMove(spb.QueryMoveRequest(migration_id="m", session_id="s"))
    ).phase == spb.MOVE_PHASE_ABORTED
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await stub.Prepare(spb.PrepareRequest(migration_id="m", state=offer.state, root_digest=b"x"))
    assert "digest" in str(late.value.details())
    assert (await stub.Offer(offer)).verdict.kind == 4, "an ended migration does not come back"
