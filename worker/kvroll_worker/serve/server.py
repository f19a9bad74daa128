"""Puts one worker together: host, gRPC services, health; and takes it down again."""

import asyncio

import grpc.aio
from google.protobuf.json_format import MessageToJson
from grpc_health.v1 import health as grpc_health
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import evaluation_pb2, inference_pb2, session_pb2, worker_pb2
from kvroll.v1.evaluation_pb2_grpc import add_EvaluationServiceServicer_to_server
from kvroll.v1.inference_pb2_grpc import add_InferenceServiceServicer_to_server
from kvroll.v1.session_pb2_grpc import add_SessionServiceServicer_to_server
from kvroll.v1.worker_pb2_grpc import add_WorkerServiceServicer_to_server
from kvroll.wire.channels import server_options
from kvroll_worker.serve.control import WorkerService
from kvroll_worker.serve.evaluation import EvaluationService
from kvroll_worker.serve.inference import InferenceService
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.serve.moves import SessionService

_REPORT_SECONDS = 3.0


class CannotListenError(OSError):
    """The address of the gRPC server is taken, or not this machine's."""


class WorkerServer:
    """The gRPC server of one host."""

    def __init__(self, host: WorkerHost, max_sessions: int) -> None:
        self.host = host
        self.control = WorkerService(host, max_sessions)
        self.moves = SessionService(host)
        self._server = grpc.aio.server(options=server_options())
        self._health = grpc_health.aio.HealthServicer()

    async def start(self, listen_host: str, port: int) -> int:
        """Starts engine, ticks and server; returns the port and writes the peers' address into the host's reference.

        Raises:
            CannotListenError: the port is taken.
        """
        names = [reflection.SERVICE_NAME, grpc_health.SERVICE_NAME]
        add_InferenceServiceServicer_to_server(InferenceService(self.host), self._server)
        add_SessionServiceServicer_to_server(self.moves, self._server)
        add_WorkerServiceServicer_to_server(self.control, self._server)
        add_EvaluationServiceServicer_to_server(EvaluationService(self.host), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for module, service in (
            (evaluation_pb2, "EvaluationService"),
            (inference_pb2, "InferenceService"),
            (session_pb2, "SessionService"),
            (worker_pb2, "WorkerService"),
        ):
            names.append(module.DESCRIPTOR.services_by_name[service].full_name)
        reflection.enable_server_reflection(names, self._server)
        try:
            bound = self._server.add_insecure_port(f"{listen_host}:{port}")
        except RuntimeError as error:
            raise CannotListenError(
                f"cannot listen on {listen_host}:{port}: it is taken, or no address of this machine"
            ) from error
        self.host.ref.MergeFrom(pb.WorkerRef(address=f"{self.host.ref.address or '127.0.0.1'}:{bound}"))
        await self.host.start()
        await self._server.start()
        for name in ["", *names]:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return bound

    def report_json(self, loop: asyncio.AbstractEventLoop) -> str:
        """The report as JSON, from any thread but the loop's.

        Raises:
            TimeoutError: the event loop does not answer.
        """

        async def report() -> str:
            return MessageToJson(self.control.report(), preserving_proto_field_name=True)

        return asyncio.run_coroutine_threadsafe(report(), loop).result(_REPORT_SECONDS)

    async def stop(self, grace_seconds: float = 1.0) -> None:
        """Ends streams, then the server, then the engine's thread."""
        await self._health.enter_graceful_shutdown()
        self.host.gateways.close()
        await self._server.stop(grace_seconds)
        await self.host.stop()
