"""A pool's loop with everything but Kubernetes: stub workers that score over gRPC behind an API server in memory."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from prometheus_client import generate_latest

from kvroll.v1.evaluation_pb2_grpc import add_EvaluationServiceServicer_to_server
from kvroll.v1.worker_pb2_grpc import add_WorkerServiceServicer_to_server
from kvroll_operator.api import API_VERSION
from kvroll_operator.cluster.client import Json
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.cluster.workers import OperatorEpoch, Workers
from kvroll_operator.metrics import Metrics
from kvroll_operator.pool_loop import PoolLoop
from tests.operator.fake_api import FakeApi
from tests.operator.stub_scores import StubScores
from tests.operator.stub_worker import StubWorker

PATHS = Paths("ns")
READY_AT = "2026-01-01T00:00:00Z"
GATE = {"source": "Builtin", "metrics": [{"name": "top1Agreement", "min": 0.9}], "minSamples": 4}


class Kubelet:
    """Runs a stub worker a Pod, each on a loopback address of its own; at KV dtype fp8_e4m3 its scores are off."""

    def __init__(self, api: FakeApi, port: int) -> None:
        self._api, self._port = api, port
        self._servers: dict[str, tuple[grpc.aio.Server, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        while True:
            pods = {p["metadata"]["uid"]: p for p in await self._api.list(PATHS.pods())}
            for uid in pods.keys() - self._servers.keys():
                await self._start(pods[uid], f"127.0.0.{20 + len(self._servers)}")
            await asyncio.sleep(0.05)

    async def _start(self, pod: Json, ip: str) -> None:
        uid = pod["metadata"]["uid"]
        worker = StubWorker(f"{ip}:{self._port}")
        worker.ref.instance_id = f"{uid}/1"
        args = pod["spec"]["containers"][0]["args"]
        server = grpc.aio.server()
        add_WorkerServiceServicer_to_server(worker, server)
        add_EvaluationServiceServicer_to_server(StubScores(f"{uid}/1", 0.5 if "fp8_e4m3" in args else 0.0), server)
        server.add_insecure_port(f"{ip}:{self._port}")
        await server.start()
        self._servers[uid] = server, asyncio.create_task(worker.move_sessions())
        conditions = [{"type": t, "status": "True", "lastTransitionTime": READY_AT} for t in ("PodScheduled", "Ready")]
        running = [{"name": "engine", "state": {"running": {"startedAt": READY_AT}}}]
        status = {"phase": "Running", "podIP": ip, "conditions": conditions, "containerStatuses": running}
        await self._api.patch(PATHS.pods(pod["metadata"]["name"]), {"metadata": {}, "status": status})

    async def close(self) -> None:
        for server, moving in self._servers.values():
            moving.cancel()
            await server.stop(None)


class Site:
    """The pool, and what can be seen of it."""

    def __init__(self, api: FakeApi, loop: PoolLoop) -> None:
        self.api, self.loop = api, loop

    @property
    def pool(self) -> Json:
        return self.api.objects[PATHS.pools("chat")]

    def change(self, **spec: Any) -> None:
        pool = self.pool
        pool["spec"] = {**pool["spec"], **spec}
        pool["metadata"]["generation"] += 1
        self.loop.wake()

    async def until(self, holds: Callable[[Json], bool]) -> Json:
        async with asyncio.timeout(120):
            while not holds(status := self.pool.get("status") or {"conditions": []}):
                await asyncio.sleep(0.05)
        return dict(status)

    def events(self) -> list[str]:
        return [o["reason"] for o in self.api.objects.values() if o.get("kind") == "Event"]


def condition(status: Json, kind: str) -> tuple[str, str, int]:
    found: Json = next((c for c in status["conditions"] if c["type"] == kind), {})
    return found.get("status", ""), found.get("reason", ""), found.get("observedGeneration", 0)


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> AsyncIterator[Site]:
    monkeypatch.setattr("kvroll_operator.cluster.workers.GRPC_PORT", unused_tcp_port)
    api = FakeApi()
    spec = {
        "replicas": 2,
        "model": {"name": "chat", "uri": "file:///m"},
        "precision": {"weights": "bf16", "kvCache": "bf16"},
        "engine": {"image": "i"},
        "gate": GATE,
    }
    metadata = {"name": "chat", "namespace": "ns"}
    await api.create(
        PATHS.pools(), {"apiVersion": API_VERSION, "kind": "InferencePool", "metadata": metadata, "spec": spec}
    )
    workers = Workers(OperatorEpoch("", 1))
    loop = PoolLoop(api, workers, PATHS, "chat", "", Metrics())
    kubelet = Kubelet(api, unused_tcp_port)
    running = [asyncio.create_task(loop.run()), asyncio.create_task(kubelet.run())]
    made = Site(api, loop)
    await made.until(lambda s: condition(s, "RolloutComplete")[0] == "True")
    yield made
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await workers.close()
    await kubelet.close()


@pytest.mark.slow
async def test_a_gate_lets_one_precision_in_and_holds_another(site: Site) -> None:
    site.change(precision={"weights": "bf16", "kvCache": "int8"})
    status = await site.until(lambda s: condition(s, "RolloutComplete")[::2] == ("True", 2))
    shown = status["gate"]
    assert (shown["verdict"], shown["point"]) == ("Pass", "Canary")
    assert [(m["name"], m["value"], m["min"]) for m in shown["metrics"] if m["verdict"] == "Pass"] == [
        ("top1Agreement", 1.0, 0.9)
    ]
    revision = site.api.objects[PATHS.revisions(shown["evidence"])]
    (stored,) = json.loads(revision["metadata"]["annotations"]["kvroll.dev/evidence"])
    assert hashlib.sha256(stored["report"].encode()).hexdigest() == stored["digest"] == shown["digest"]
    report = json.loads(stored["report"])
    assert (report["candidateRevision"], report["samples"]) == (status["updateRevision"], shown["samples"])
    before = {o["metadata"]["uid"] for o in await site.api.list(PATHS.pods())}
    site.change(precision={"weights": "bf16", "kvCache": "fp8_e4m3"})
    status = await site.until(lambda s: s.get("rollout", {}).get("phase") == "Failed")
    assert condition(status, "GatePassed")[:2] == ("False", "Failed")
    assert condition(status, "Stalled")[:2] == ("True", "GateFailed")
    async with asyncio.timeout(30):
        while {o["metadata"]["uid"] for o in await site.api.list(PATHS.pods())} != before:
            await asyncio.sleep(0.05)
    assert {"GateStarted", "GatePassed", "GateFailed", "RolloutFailed"} <= set(site.events())
    shown_metrics = generate_latest(site.loop.metrics.registry).decode()
    assert 'kvroll_gate_verdict{pool="chat",verdict="Fail"} 1.0' in shown_metrics
    assert 'kvroll_gate_runs_total{pool="chat",verdict="Fail"} 1.0' in shown_metrics


@pytest.mark.slow
async def test_drained_first_the_baseline_is_kept(site: Site) -> None:
    site.change(
        precision={"weights": "bf16", "kvCache": "int8"},
        rollout={"maxSurge": 0, "maxUnavailable": 1},
        gate={**GATE, "at": ["EveryGroup", "Final"]},
    )
    status = await site.until(lambda s: condition(s, "RolloutComplete")[::2] == ("True", 2))
    annotations = site.api.objects[PATHS.revisions(status["gate"]["evidence"])]["metadata"]["annotations"]
    stored = json.loads(annotations["kvroll.dev/evidence"])
    assert {e["point"] for e in stored} == {"G0", "G1", "Final"}
    assert [bool(e["report"]) for e in stored] == [False, False, True], "the newest report is kept"
    assert json.loads(stored[-1]["report"])["baselineWorker"] == ""
    assert "BaselineKept" in site.events()
