"""Admission, fencing of operators and instances, seal, health, and a gateway that is slow or gone."""

import asyncio
import urllib.error
import urllib.request

import grpc
import grpc.aio
import pytest
from google.protobuf.json_format import Parse

from kvroll.v1 import inference_pb2 as ipb
from kvroll.v1 import worker_pb2 as wpb
from kvroll_gateway.sessions.phases import OwnershipPhase
from kvroll_worker.serve.health import Health, HealthServer
from tests.doubles.engine_double import EngineDouble, undisturbed
from tests.wire.conftest import EPOCH, MakeWorker
from tests.wire.stream_gateway import StreamGateway

PROMPT = list(range(1, 50))


async def refused(call: "grpc.aio.UnaryUnaryCall[object, object]") -> str:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    return str(error.value.details())


async def test_calls_for_another_instance_or_of_an_older_operator_are_refused(make_worker: MakeWorker) -> None:
    worker = await make_worker()
    control, mine = worker.control, worker.instance_id
    text = await refused(
        control.SetAdmission(wpb.SetAdmissionRequest(operator_epoch=EPOCH, instance_id="w0/old", admitting=True))
    )
    assert "expected instance w0/old" in text
    newer = wpb.OperatorEpoch(lease_uid="lease", transitions=5)
    await control.SetAdmission(wpb.SetAdmissionRequest(operator_epoch=newer, instance_id=mine, admitting=True))
    text = await refused(
        control.SetAdmission(wpb.SetAdmissionRequest(operator_epoch=EPOCH, instance_id=mine, admitting=False))
    )
    assert "below 5" in text
    other = wpb.OperatorEpoch(lease_uid="other", transitions=1)
    await control.SetAdmission(wpb.SetAdmissionRequest(operator_epoch=other, instance_id=mine, admitting=True))
    assert "followed by other" in await refused(control.Seal(wpb.SealRequest(operator_epoch=newer, instance_id=mine)))


async def test_a_drain_needs_closed_admission_and_known_words(make_worker: MakeWorker) -> None:
    worker = await make_worker()
    with pytest.raises(grpc.aio.AioRpcError, match="admission is open"):
        await worker.drain()
    await worker.admit(False)
    with pytest.raises(grpc.aio.AioRpcError, match="Teleport"):
        await worker.drain(allow=["Teleport"])


async def test_a_worker_that_does_not_admit_says_so_and_gateways_hear_of_changes(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    worker = await make_worker(admitting=False)
    await gateway.attach(worker.address)
    gateway.submit(worker.instance_id, "s", PROMPT)
    await gateway.until(lambda: gateway.rejections)
    assert gateway.rejections[0].code == ipb.REJECT_CODE_UNAVAILABLE
    await worker.admit(True)
    await gateway.until(lambda: gateway.admission == [True])
    gateway.submit(worker.instance_id, "t", PROMPT, max_tokens=5)
    await gateway.finished("t")


@pytest.mark.parametrize(
    ("prompt", "sampling", "text"),
    [
        (PROMPT, {"max_tokens": 100_000}, "tokens do not fit"),
        (PROMPT, {"top_p": 0.0}, "top_p"),
        ([999], {}, "token ids from 0 to 255, found 999"),
        ([], {}, "exactly one of"),
    ],
)
async def test_what_can_never_run_is_invalid(
    make_worker: MakeWorker, gateway: StreamGateway, prompt: list[int], sampling: dict[str, object], text: str
) -> None:
    worker = await make_worker()
    await gateway.attach(worker.address)
    gateway.submit(worker.instance_id, "s", prompt, **sampling)  # type: ignore[arg-type]
    await gateway.until(lambda: gateway.rejections)
    assert gateway.rejections[0].code == ipb.REJECT_CODE_INVALID
    assert text in gateway.rejections[0].message
    assert not worker.host.ledger.sessions


async def test_seal_waits_for_sessions_and_unacknowledged_frames_and_is_for_ever(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.001))
    await gateway.attach(worker.address)
    gateway.silenced.add("ack")
    session = gateway.submit(worker.instance_id, "s", PROMPT, max_tokens=20)
    await gateway.until(lambda: session.log.next_index >= 1)
    with pytest.raises(grpc.aio.AioRpcError, match="admission is open"):
        await worker.seal()
    await worker.admit(False)
    with pytest.raises(grpc.aio.AioRpcError, match="1 sessions"):
        await worker.seal()
    await gateway.finished("s")
    with pytest.raises(grpc.aio.AioRpcError, match="1 of them finished, frames unacknowledged"):
        await worker.seal()
    assert (await worker.report()).sessions.unacknowledged == 1
    gateway.silenced.clear()
    await gateway.detach(worker.instance_id)
    await gateway.attach(worker.address)
    await gateway.until(lambda: not worker.host.ledger.sessions)
    assert (await worker.seal()).instance_id == worker.instance_id
    await worker.seal()  # a repeat gets the receipt again
    with pytest.raises(grpc.aio.AioRpcError, match="sealed"):
        await worker.admit(True)
    assert (await worker.report()).sealed


@pytest.mark.slow
async def test_a_session_runs_at_most_so_far_ahead_of_its_gateway(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.04), max_unacknowledged=16)
    await gateway.attach(worker.address)
    gateway.silenced.add("ack")
    session = gateway.submit(worker.instance_id, "s", PROMPT, max_tokens=100)
    await gateway.until(lambda: session.log.next_index >= 16)
    await asyncio.sleep(1)  # 25 steps
    assert session.log.next_index <= 20, "some steps may have been under way, more of them on a busy machine"
    await gateway.detach(worker.instance_id)
    gateway.silenced.clear()
    await gateway.attach(worker.address)
    [tokens] = await gateway.finished("s")
    assert tokens == undisturbed(PROMPT, 100)


async def test_a_session_that_no_gateway_claims_is_freed(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.001), orphan_lease_seconds=0.5, max_unacknowledged=8)
    await gateway.attach(worker.address)
    session = gateway.submit(worker.instance_id, "s", PROMPT, max_tokens=500)
    await gateway.until(lambda: session.log.next_index >= 2)
    await gateway.detach(worker.instance_id)
    await asyncio.sleep(0.2)
    assert worker.host.ledger.sessions, "the lease is not over yet"
    await gateway.until(lambda: not worker.host.ledger.sessions, 3)
    await gateway.until(lambda: worker.engine.stats().pages_free == worker.engine.num_pages)


async def test_an_exception_in_a_sessions_turn_costs_that_session_only(
    make_worker: MakeWorker, gateway: StreamGateway
) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.002))
    await gateway.attach(worker.address)
    sick, well = (gateway.submit(worker.instance_id, name, PROMPT, max_tokens=100) for name in ("sick", "well"))
    await gateway.until(lambda: sick.log.next_index >= 2)
    worker.engine.fail_session["sick"] = ArithmeticError("NaN in the sampler")
    await gateway.until(lambda: sick.phase is OwnershipPhase.FAILED)
    assert sick.failure is not None
    assert (sick.failure.code, "NaN" in sick.failure.message) == ("SessionError", True)
    await gateway.finished("well")
    assert well.phase is OwnershipPhase.FINISHED
    assert not worker.crashes
    worker.engine.fail_step = RuntimeError("the pool is corrupt")
    gateway.submit(worker.instance_id, "next", PROMPT)
    await gateway.until(lambda: worker.crashes)
    assert "corrupt" in str(worker.crashes[0])


async def test_health_tells_loading_serving_and_a_dead_engine_apart(make_worker: MakeWorker) -> None:
    worker = await make_worker()
    health = Health()
    server = HealthServer("127.0.0.1", 0, health, worker.host.metrics.registry)
    server.start()

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    try:
        assert (await asyncio.to_thread(get, "/healthz"))[0] == 200
        status, text = await asyncio.to_thread(get, "/readyz")
        assert (status, "loading" in text) == (503, True)
        assert (await asyncio.to_thread(get, "/report"))[0] == 503
        loop = asyncio.get_running_loop()
        health.serving(worker.host, lambda: worker.server.report_json(loop))
        status, text = await asyncio.to_thread(get, "/report")
        assert (status, Parse(text, wpb.GetReportResponse())) == (200, await worker.report())
        assert await asyncio.to_thread(get, "/readyz") == (200, "serving\n")
        assert "vllm:kv_cache_usage_perc" in (await asyncio.to_thread(get, "/metrics"))[1]
        await worker.host.loop.stop()
        status, text = await asyncio.to_thread(get, "/healthz")
        assert (status, text) == (503, "the engine's thread has ended\n")
    finally:
        server.stop()
