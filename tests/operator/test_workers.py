"""The channels to workers of several pools."""

import asyncio

import grpc
import pytest

from kvroll.v1 import worker_pb2
from kvroll.v1.worker_pb2_grpc import add_WorkerServiceServicer_to_server
from kvroll_operator.cluster.workers import OperatorEpoch, Workers
from kvroll_operator.rollout.act.effects import SetAdmission
from kvroll_operator.rollout.facts.observed import Pod
from tests.operator.stub_worker import StubWorker, _Context


class SlowWorker(StubWorker):
    async def SetAdmission(
        self, request: worker_pb2.SetAdmissionRequest, context: _Context
    ) -> worker_pb2.SetAdmissionResponse:
        await asyncio.sleep(0.3)
        return await super().SetAdmission(request, context)


async def test_a_pass_of_one_pool_cuts_no_call_of_another(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setattr("kvroll_operator.cluster.workers.GRPC_PORT", unused_tcp_port)
    address = f"127.0.0.1:{unused_tcp_port}"
    worker = SlowWorker(address)
    worker.ref.instance_id = "u1/1"
    server = grpc.aio.server()
    add_WorkerServiceServicer_to_server(worker, server)
    server.add_insecure_port(address)
    await server.start()
    workers = Workers(OperatorEpoch("", 1))
    mine = {"metadata": {"uid": "u1"}, "status": {"phase": "Running", "podIP": "127.0.0.1"}}
    assert (await workers.reports("a", [mine]))["u1"] is not None
    pod = Pod("p", "u1", "1", "r", 0, 0, 0, 0.0)
    opening = asyncio.create_task(workers.set_admission(SetAdmission(pod, "u1/1", address, True)))
    await asyncio.sleep(0.1)
    await workers.reports("b", [])
    await opening
    assert worker.admitting
    await workers.forget("a")
    await workers.close()
    await server.stop(None)
