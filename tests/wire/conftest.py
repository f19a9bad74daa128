"""Worker servers in process on loopback, and a gateway that speaks to them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc.aio
import pytest

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import worker_pb2 as wpb
from kvroll.v1.worker_pb2_grpc import WorkerServiceStub
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.port import EnginePort
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.serve.metrics import Metrics
from kvroll_worker.serve.server import WorkerServer
from tests.doubles.engine_double import EngineDouble
from tests.wire.stream_gateway import StreamGateway

ALLOW = ["FinishSoon", "Convert", "Exact", "Replay", "Finish"]


@dataclass
class RunningWorker:
    """One worker process in miniature; `engine` is read from the test only while the worker is idle."""

    engine: Any
    host: WorkerHost
    server: WorkerServer
    control: Any
    channel: grpc.aio.Channel
    crashes: list[BaseException]

    @property
    def instance_id(self) -> str:
        return self.host.ref.instance_id

    @property
    def address(self) -> str:
        return self.host.ref.address

    def target(self, *, same_revision: bool = False) -> wpb.DrainTarget:
        return wpb.DrainTarget(worker=self.host.ref, same_revision=same_revision)

    async def admit(self, admitting: bool) -> None:
        await self.control.SetAdmission(
            wpb.SetAdmissionRequest(operator_epoch=EPOCH, instance_id=self.instance_id, admitting=admitting)
        )

    async def drain(
        self, *targets: wpb.DrainTarget, allow: list[str] | None = None, **settings: Any
    ) -> wpb.DrainCounters:
        request = wpb.DrainRequest(
            operator_epoch=EPOCH,
            instance_id=self.instance_id,
            allow=allow or ALLOW,
            targets=targets,
            **{"drain_id": "d1", "parallel": 5, **settings},
        )
        counters: wpb.DrainCounters = (await self.control.Drain(request)).counters
        return counters

    async def report(self) -> wpb.GetReportResponse:
        report: wpb.GetReportResponse = await self.control.GetReport(wpb.GetReportRequest())
        return report

    async def drained(self, seconds: float = 20.0) -> wpb.DrainCounters:
        """The counters once every session of the drain is accounted for."""
        deadline = time.monotonic() + seconds
        while True:
            counters = (await self.report()).drain
            ways = ("finished_soon", "exact", "converted", "replayed", "finished", "lost")
            if counters.held and counters.remaining == 0 and sum(getattr(counters, w) for w in ways) == counters.held:
                return counters
            assert time.monotonic() < deadline, counters
            await asyncio.sleep(0.01)

    async def seal(self) -> wpb.SealResponse:
        receipt: wpb.SealResponse = await self.control.Seal(
            wpb.SealRequest(operator_epoch=EPOCH, instance_id=self.instance_id)
        )
        return receipt

    async def stop(self) -> None:
        await self.channel.close()
        await self.server.stop(0)


EPOCH = wpb.OperatorEpoch(lease_uid="lease", transitions=1)
MakeWorker = Callable[..., Awaitable[RunningWorker]]


@pytest.fixture
async def make_worker() -> AsyncIterator[MakeWorker]:
    """Starts a worker around an engine (the double by default) on a free port, admitting."""
    running: list[RunningWorker] = []

    async def make(
        engine: EnginePort | None = None, *, name: str | None = None, admitting: bool = True, **ledger: Any
    ) -> RunningWorker:
        engine = engine if engine is not None else EngineDouble()
        name = name or f"w{len(running)}"
        crashes: list[BaseException] = []
        ref = pb.WorkerRef(worker_id=name, instance_id=f"{name}/boot", address="127.0.0.1")
        host = WorkerHost(engine, ref, "m", Ledger(**{"retry_seconds": 0.3, **ledger}), Metrics("m"), crashes.append)
        server = WorkerServer(host, 64)
        port = await server.start("127.0.0.1", 0)
        host.set_admission(admitting)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
        worker = RunningWorker(engine, host, server, WorkerServiceStub(channel), channel, crashes)
        running.append(worker)
        return worker

    yield make
    for worker in running:
        await worker.stop()


@pytest.fixture
async def gateway() -> AsyncIterator[StreamGateway]:
    """One gateway; the test attaches it to its workers."""
    one = StreamGateway()
    yield one
    await one.close()
