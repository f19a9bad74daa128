"""Pools on the API server in memory, with workers that do at once what they are told: for tests of the loops around the pure core."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from kvroll_operator.api import API_VERSION
from kvroll_operator.cluster.client import Json
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.cluster.workers import OperatorEpoch, Workers
from kvroll_operator.metrics import Metrics
from kvroll_operator.pool_loop import PoolLoop
from kvroll_operator.rollout.act import effects as fx
from kvroll_operator.rollout.facts.observed import Report, Tally
from tests.operator.fake_api import FakeApi

PATHS = Paths("ns")
READY_AT = "2026-01-01T00:00:00Z"
SPEC: Json = {
    "replicas": 2,
    "model": {"name": "chat", "uri": "file:///m"},
    "precision": {"weights": "bf16", "kvCache": "bf16"},
    "engine": {"image": "i"},
}


class TameWorkers(Workers):
    """Workers that hold `sessions` each as long as they are drained, and none afterwards."""

    def __init__(self) -> None:
        super().__init__(OperatorEpoch("", 1))
        self.admitting: set[str] = set()
        self.sealed: set[str] = set()
        self.draining: dict[str, str] = {}
        self.sessions: dict[str, int] = {}
        self.silent: set[str] = set()

    async def reports(self, pool: str, pods: Iterable[Mapping[str, Any]]) -> dict[str, Report | None]:
        return {p["metadata"]["uid"]: self._of(p) for p in pods if (p.get("status") or {}).get("phase") == "Running"}

    def _of(self, pod: Mapping[str, Any]) -> Report | None:
        uid = pod["metadata"]["uid"]
        if uid in self.silent:
            return None
        instance = f"{uid}/1"
        return Report(
            instance,
            pod["metadata"]["name"],
            True,
            instance in self.admitting,
            instance in self.sealed,
            drain_id=self.draining.get(instance, ""),
            sessions=self.sessions.get(uid, 0),
            remaining=self.sessions.get(uid, 0),
        )

    async def set_admission(self, effect: fx.SetAdmission) -> None:
        (self.admitting.add if effect.admitting else self.admitting.discard)(effect.instance_id)

    async def drain(self, effect: fx.DrainWorker) -> None:
        self.draining[effect.instance_id] = effect.drain.uid

    async def cancel_drain(self, instance_id: str, address: str, drain_id: str) -> None:
        self.draining.pop(instance_id, None)

    async def seal(self, effect: fx.SealWorker) -> tuple[str, Tally] | None:
        self.sealed.add(effect.instance_id)
        return effect.instance_id, Tally()


class Site:
    """One API server and its pools' loops, driven pass by pass."""

    def __init__(self, api: FakeApi | None = None) -> None:
        self.api = api or FakeApi()
        self.workers = TameWorkers()
        self.metrics = Metrics()
        self.now = 1_800_000_000.0
        self.loops: dict[str, PoolLoop] = {}

    async def make(self, name: str, **spec: Any) -> PoolLoop:
        metadata = {"name": name, "namespace": "ns"}
        body = {
            "apiVersion": API_VERSION,
            "kind": "InferencePool",
            "metadata": metadata,
            "spec": copy.deepcopy({**SPEC, **spec}),
        }
        await self.api.create(PATHS.pools(), body)
        self.loops[name] = PoolLoop(self.api, self.workers, PATHS, name, "", self.metrics, now=lambda: self.now)
        return self.loops[name]

    def pool(self, name: str = "chat") -> Json:
        return self.api.objects[PATHS.pools(name)]

    def change(self, name: str = "chat", **spec: Any) -> None:
        pool = self.pool(name)
        pool["spec"] = {**pool["spec"], **spec}
        pool["metadata"]["generation"] += 1

    def owned(self, kind: str, name: str = "chat") -> list[Json]:
        paths = {"Pod": PATHS.pods(), "ControllerRevision": PATHS.revisions(), "WorkerDrain": PATHS.drains()}
        uid = self.pool(name)["metadata"]["uid"]
        items = [o for at, o in self.api.objects.items() if at.startswith(f"{paths[kind]}/")]
        return [o for o in items if any(r.get("uid") == uid for r in o["metadata"].get("ownerReferences") or [])]

    def run_pods(self) -> None:
        """The kubelet: what was made runs and is Ready."""
        conditions = [{"type": t, "status": "True", "lastTransitionTime": READY_AT} for t in ("PodScheduled", "Ready")]
        for at, item in self.api.objects.items():
            if at.startswith(f"{PATHS.pods()}/") and "status" not in item:
                running = [{"name": "engine", "state": {"running": {"startedAt": READY_AT}}}]
                item["status"] = {"phase": "Running", "podIP": "127.0.0.1", "conditions": conditions}
                item["status"]["containerStatuses"] = running

    async def passes(self, count: int = 1, name: str = "chat") -> None:
        for _ in range(count):
            await self.loops[name].once()
            self.run_pods()
            self.now += 10

    async def settle(self, name: str = "chat", most: int = 60) -> None:
        for _ in range(most):
            await self.passes(1, name)
            if self.condition("RolloutComplete", name)[0] == "True":
                return
        raise AssertionError(f"not settled: {self.pool(name).get('status')}")

    def condition(self, kind: str, name: str = "chat") -> tuple[str, str, str]:
        conditions = (self.pool(name).get("status") or {}).get("conditions", [])
        found: Json = next((c for c in conditions if c["type"] == kind), {})
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    def events(self) -> list[str]:
        return [o["reason"] for o in self.api.objects.values() if o.get("kind") == "Event"]
