"""The loop of one pool: observe, decide, act, show; again as soon as something may have changed."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import ValidationError

from kvroll_operator.api.pool import PoolSpec
from kvroll_operator.cluster import objects, parse
from kvroll_operator.cluster.client import Api, ApiError, Json
from kvroll_operator.cluster.execute import Executor
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import FINALIZER, REQUEST_ANNOTATION, Paths, pool_selector
from kvroll_operator.cluster.status import StatusWriter
from kvroll_operator.cluster.workers import Workers
from kvroll_operator.gate.opener import SourceOpener
from kvroll_operator.gate.runner import GateRunner
from kvroll_operator.metrics import Metrics
from kvroll_operator.rollout import effects as fx
from kvroll_operator.rollout.desired import Desired, desired_from
from kvroll_operator.rollout.observed import Observed
from kvroll_operator.rollout.transition import transition
from kvroll_operator.rollout.wall import Watch

log = structlog.get_logger()

DATASET_FOLDER = Path("/datasets")
AT_ONCE_SECONDS = 0.2
BUSY_SECONDS = 1.0
IDLE_SECONDS = 15.0
ENSURE_SECONDS = 60.0
_REPEATED = (fx.DrainWorker, fx.RecordDrain, fx.SealWorker)
"""Effects that come again each pass while a drain goes on; they alone do not call for the next pass at once."""


@dataclass
class PoolLoop:
    """Reconciles one pool until it is gone. It keeps nothing between passes that a decision depends on; the wall is shown only."""

    api: Api
    workers: Workers
    paths: Paths
    name: str
    default_image: str
    metrics: Metrics
    dataset_folder: Path = DATASET_FOLDER
    now: Callable[[], float] = time.time
    finished_at: float = field(default_factory=time.monotonic)  # of the last pass that came to its end
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _ensured_at: float = float("-inf")
    _writer: StatusWriter | None = None
    _gates: GateRunner | None = None
    _opener: SourceOpener | None = None
    _watch: Watch = field(default_factory=Watch)

    def wake(self) -> None:
        """Something about this pool changed."""
        self._wake.set()

    async def run(self) -> None:
        """Passes until the pool is gone; an error delays the next one."""
        try:
            await self._passes()
        finally:
            await self.workers.forget(self.name)
            if self._gates is not None:
                await self._gates.close()
            if self._opener is not None:
                await self._opener.close()

    async def _passes(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            try:
                with self.metrics.reconcile_seconds.time():
                    delay = await self.once()
                failures = 0
            except (ApiError, OSError, TimeoutError, ValidationError) as error:
                failures += 1
                self.metrics.reconcile_errors.inc()
                log.warning("pass_failed", pool=self.name, error=str(error)[:500], failures=failures)
                delay = min(10.0, 0.5 * 2**failures)
            if delay is None:
                return
            self.finished_at = time.monotonic()
            await self._sleep(delay)

    async def once(self) -> float | None:
        """One pass; returns the seconds until the next is due, None when the pool is gone."""
        try:
            pool = await self.api.get(self.paths.pools(self.name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        owner = Owner(self.name, pool["metadata"]["uid"], self.paths.namespace)
        await self._ensure(pool, owner)
        gates = self._runner(owner)
        spec = PoolSpec.model_validate(pool["spec"])
        desired, observed = await self._observe(pool, spec)
        status, effects = transition(desired, observed)
        executor = Executor(self.api, self.workers, owner, self.paths, gates, spec.gate)
        failed = await executor.execute(effects)
        self.metrics.effects(effects, failed)
        if self._writer is None:
            self._writer = StatusWriter(self.api, self.paths)
        await self._writer.write(pool, status)
        self.metrics.show(self.name, status)
        if any(isinstance(e, fx.ReleasePool) for e in effects) and not failed:
            return None
        if any(not isinstance(e, _REPEATED) for e in effects):
            return BUSY_SECONDS if failed else AT_ONCE_SECONDS
        is_idle = not effects and all(c.status == "True" for c in status.conditions if c.type == "RolloutComplete")
        return IDLE_SECONDS if is_idle else BUSY_SECONDS

    def _runner(self, owner: Owner) -> GateRunner:
        """Made once for each pool of the name: one that was deleted and made again is another."""
        if self._gates is None or self._opener is None or self._opener.owner != owner:
            if self._gates is not None:
                self._gates.stop()
            self._opener = SourceOpener(self.api, owner, self.paths, self.dataset_folder)
            self._gates = GateRunner(self._opener, self.now, self._gate_over)
        return self._gates

    def _gate_over(self) -> None:
        run = self._gates.run if self._gates is not None else None
        if run is not None:
            self.metrics.gate_over(self.name, run.verdict)
        self.wake()

    async def _observe(self, pool: Json, spec: PoolSpec) -> tuple[Desired, Observed]:
        """Quorum reads: each list is as new as our own last write, and we are the only writer of what decisions read."""
        selector = pool_selector(self.name)
        revision_items, drain_items, pod_items = await asyncio.gather(
            self.api.list(self.paths.revisions(), selector),
            self.api.list(self.paths.drains(), selector),
            self.api.list(self.paths.pods(), selector),
        )
        uid = pool["metadata"]["uid"]
        revision_items, drain_items, pod_items = (
            _owned(items, uid) for items in (revision_items, drain_items, pod_items)
        )
        reports = await self.workers.reports(self.name, pod_items)
        revisions = tuple(parse.revision(item) for item in revision_items)
        pods = tuple(parse.pod(item, reports.get(item["metadata"]["uid"])) for item in pod_items)
        self._watch = self._watch.look(pods, time.monotonic())
        observed = Observed(
            now=self.now(),
            pods=pods,
            revisions=revisions,
            drains=tuple(parse.drain(item) for item in drain_items),
            gate=self._gates.run if self._gates is not None else None,
            wall=self._watch.judged,
        )
        request = pool["metadata"].get("annotations", {}).get(REQUEST_ANNOTATION, "")
        return desired_from(
            pool["metadata"], spec, revisions, default_image=self.default_image, request=request
        ), observed

    async def _ensure(self, pool: Json, owner: Owner) -> None:
        """Finalizer, Service and PodDisruptionBudget, before the first worker is made and once a minute."""
        metadata = pool["metadata"]
        if "deletionTimestamp" in metadata or time.monotonic() - self._ensured_at < ENSURE_SECONDS:
            return
        finalizers = metadata.get("finalizers", [])
        if FINALIZER not in finalizers:
            body = {
                "metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": [*finalizers, FINALIZER]}
            }
            await self.api.patch(self.paths.pools(self.name), body)
        service, budget = objects.service(owner), objects.disruption_budget(owner)
        await self.api.apply(self.paths.services(service["metadata"]["name"]), service)
        await self.api.apply(self.paths.disruption_budgets(budget["metadata"]["name"]), budget)
        self._ensured_at = time.monotonic()

    async def _sleep(self, delay: float) -> None:
        """Until the delay is over or something changed, but never less than a moment: events come in swarms."""
        await asyncio.sleep(min(delay, AT_ONCE_SECONDS))
        try:
            await asyncio.wait_for(self._wake.wait(), max(0.0, delay - AT_ONCE_SECONDS))
        except TimeoutError:
            return


def _owned(items: list[Json], pool_uid: str) -> list[Json]:
    """What this very pool made: neither what an earlier pool of the name left behind, nor what somebody labelled by hand."""
    return [
        item for item in items if any(o.get("uid") == pool_uid for o in item["metadata"].get("ownerReferences", []))
    ]
