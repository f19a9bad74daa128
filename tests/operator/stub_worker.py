"""A worker without an engine for the operator's tests on a cluster: WorkerService and /readyz, with sessions that are only counted."""

import asyncio
import os
import secrets
import signal
import sys
from typing import TYPE_CHECKING, Any

import grpc
from aiohttp import web

from kvroll.v1 import common_pb2, worker_pb2, worker_pb2_grpc
from kvroll.v1.evaluation_pb2_grpc import add_EvaluationServiceServicer_to_server
from tests.operator.stub_scores import StubScores

if TYPE_CHECKING:
    _Context = grpc.aio.ServicerContext[Any, Any]
else:
    _Context = object
SESSIONS_AT_ADMISSION = int(os.environ.get("STUB_SESSIONS", "4"))
MOVE_SECONDS = 0.1


class StubWorker(worker_pb2_grpc.WorkerServiceServicer):
    """Holds sessions once admitted, and moves one every tenth of a second while it is drained and has a target."""

    def __init__(self, address: str) -> None:
        pod_uid = os.environ.get("KVROLL_POD_UID", "uid")
        self.ref = common_pb2.WorkerRef(
            worker_id=os.environ.get("KVROLL_WORKER_ID", "stub"),
            instance_id=f"{pod_uid}/{secrets.token_hex(4)}",
            address=address,
        )
        self.admitting = False
        self.sealed = False
        self.sessions = 0
        self.drain_id = ""
        self.has_target = False
        self.tally = worker_pb2.DrainCounters()

    async def _check(self, instance_id: str, context: _Context) -> None:
        if instance_id != self.ref.instance_id:
            await context.abort(
                grpc.StatusCode.ABORTED, f"expected instance {self.ref.instance_id}, found {instance_id}"
            )

    async def GetReport(self, request: worker_pb2.GetReportRequest, context: _Context) -> worker_pb2.GetReportResponse:
        return worker_pb2.GetReportResponse(
            worker=self.ref,
            ready=True,
            admitting=self.admitting,
            sealed=self.sealed,
            drain_id=self.drain_id,
            sessions=worker_pb2.SessionCounts(running=self.sessions),
            drain=self.tally,
        )

    async def SetAdmission(
        self, request: worker_pb2.SetAdmissionRequest, context: _Context
    ) -> worker_pb2.SetAdmissionResponse:
        await self._check(request.instance_id, context)
        if self.sealed and request.admitting:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "sealed")
        if request.admitting and not self.admitting:
            self.sessions += SESSIONS_AT_ADMISSION
        self.admitting = request.admitting
        return worker_pb2.SetAdmissionResponse(admitting=self.admitting)

    async def Drain(self, request: worker_pb2.DrainRequest, context: _Context) -> worker_pb2.DrainResponse:
        await self._check(request.instance_id, context)
        if self.admitting:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "admission is open")
        if request.drain_id != self.drain_id:
            self.drain_id = request.drain_id
            self.tally = worker_pb2.DrainCounters(held=self.sessions, remaining=self.sessions)
        self.has_target = bool(request.targets)
        return worker_pb2.DrainResponse(counters=self.tally)

    async def CancelDrain(
        self, request: worker_pb2.CancelDrainRequest, context: _Context
    ) -> worker_pb2.CancelDrainResponse:
        await self._check(request.instance_id, context)
        self.drain_id, self.has_target = "", False
        return worker_pb2.CancelDrainResponse()

    async def Seal(self, request: worker_pb2.SealRequest, context: _Context) -> worker_pb2.SealResponse:
        await self._check(request.instance_id, context)
        if self.sessions:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{self.sessions} sessions are left")
        self.sealed = True
        return worker_pb2.SealResponse(instance_id=self.ref.instance_id, counters=self.tally)

    async def move_sessions(self) -> None:
        """For ever: one session a step, as converted if there is a target, else as finished."""
        while True:
            await asyncio.sleep(MOVE_SECONDS)
            if not self.drain_id or not self.sessions or "--never-empty" in sys.argv:
                continue
            self.sessions -= 1
            self.tally.remaining = self.sessions
            if self.has_target:
                self.tally.converted += 1
                self.tally.wire_bytes += 1000
            else:
                self.tally.finished += 1


async def main() -> None:
    """Serves until it is ended."""
    address = os.environ.get("KVROLL_POD_IP", "127.0.0.1")
    worker = StubWorker(f"{address}:7070")
    server = grpc.aio.server()
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, server)
    wrong = 0.5 if "fp8_e4m3" in sys.argv else 0.0
    add_EvaluationServiceServicer_to_server(StubScores(worker.ref.instance_id, wrong), server)
    server.add_insecure_port("0.0.0.0:7070")
    await server.start()

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 7071).start()
    print("serving", sys.argv[1:], flush=True)
    moving = asyncio.create_task(worker.move_sessions())
    # A container's first process gets no default handler.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, moving.cancel)
    await asyncio.wait({moving})


if __name__ == "__main__":
    asyncio.run(main())
