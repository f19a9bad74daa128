"""The loop of one pool: observe, decide, act, show; again as soon as something may have changed."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from kvroll_operator.api.meaning import is_same
from kvroll_operator.api.names import FINALIZER, REQUEST_ANNOTATION
from kvroll_operator.api.pool import PoolSpec
from kvroll_operator.api.reading import read_spec
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.backoff import Backoff
from kvroll_operator.cluster import objects
from kvroll_operator.cluster.client import Api, ApiError, Json
from kvroll_operator.cluster.execute import Executor
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.observe import observe
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.cluster.refusals import Refusals, refusal_of
from kvroll_operator.cluster.status import StatusWriter
from kvroll_operator.cluster.trial import TemplateTrial
from kvroll_operator.cluster.workers import Workers
from kvroll_operator.gate.opener import SourceOpener
from kvroll_operator.gate.runner import GateRunner
from kvroll_operator.metrics import Metrics
from kvroll_operator.rollout.act import effects as fx
from kvroll_operator.rollout.facts.desired import Desired, SpecProblem, desired_from
from kvroll_operator.rollout.facts.observed import Observed, Refusal, Revision
from kvroll_operator.rollout.facts.wall import Watch
from kvroll_operator.rollout.transition import Effect, transition

log = structlog.get_logger()

DATASET_FOLDER = Path("/datasets")
AT_ONCE_SECONDS = 0.2
BUSY_SECONDS = 1.0
IDLE_SECONDS = 15.0
EMPTY_SECONDS = 300.0
"""A pool without workers has nobody to ask; what changes comes as an event."""
ENSURE_SECONDS = 600.0
PASS_SECONDS = 90.0
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
    due_at: float = field(default_factory=time.monotonic)  # when the next pass is to begin
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _ensured_at: float = float("-inf")
    _status: StatusWriter | None = None
    _trial: TemplateTrial | None = None
    _refusals: Refusals = field(default_factory=Refusals)
    _retries: Backoff = field(default_factory=Backoff)
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
        backoff = Backoff()
        while True:
            self._wake.clear()
            try:
                async with asyncio.timeout(PASS_SECONDS):
                    with self.metrics.reconcile_seconds.time():
                        delay = await self.once()
                if delay is None:
                    return
                backoff.reset()
                self._note(delay)
                await self._sleep(delay)
            except Exception as error:
                # Whatever a pass raises, it is this pool's alone: the others go on, and so does this one, a little later.
                delay = backoff.next_seconds(await self._failed(error, backoff.failures))
                self._note(delay)
                await asyncio.sleep(delay)

    def _note(self, delay: float) -> None:
        """A pass came to its end, well or not; the next is due then."""
        self.due_at = time.monotonic() + delay

    async def _failed(self, error: Exception, failures: int) -> float:
        """Counts and shows it; returns the seconds that the API server asks to be left alone."""
        self.metrics.reconcile_errors.inc()
        if isinstance(error, ApiError):
            log.warning("pass_failed", pool=self.name, error=str(error)[:500], failures=failures)
            return error.retry_after_seconds
        if isinstance(error, TimeoutError):
            log.warning("pass_failed", pool=self.name, error=f"not over within {PASS_SECONDS:g} s", failures=failures)
            return 0.0
        log.exception("pass_crashed", pool=self.name, failures=failures)
        await self._tell("Degraded", "True", "PassFailed", f"{type(error).__name__}: {error}")
        return 0.0

    async def _tell(self, kind: str, word: str, reason: str, message: str) -> None:
        """One condition of a pool whose status cannot be rendered."""
        try:
            pool = await self.api.get(self.paths.pools(self.name))
            await self._writer().write_condition(pool, kind, word, reason, message)
        except ApiError as error:
            log.warning("condition_not_written", pool=self.name, error=str(error)[:500])

    async def once(self) -> float | None:
        """One pass; returns the seconds until the next is due, None when the pool is gone.

        Raises:
            ApiError: what must be known or written first could not be.
        """
        try:
            pool = await self.api.get(self.paths.pools(self.name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        owner = Owner(self.name, pool["metadata"]["uid"], self.paths.namespace)
        spec, problem = read_spec(pool.get("spec"))
        is_deleting = "deletionTimestamp" in pool["metadata"]
        if spec is None and not is_deleting:
            await self._writer().write_condition(pool, "SpecAccepted", "False", "SpecUnreadable", problem)
            return IDLE_SECONDS
        await self._ensure(pool, owner)
        gates = self._runner(owner)
        desired, observed = await self._observe(pool, spec, problem, owner)
        status, effects = transition(desired, observed)
        gate = spec.gate if spec is not None else None
        executor = Executor(self.api, self.workers, owner, self.paths, gates, gate, self.now, self._refusals)
        outcome = await executor.execute(effects)
        self.metrics.effects(effects, outcome.failed)
        if outcome.down is not None:
            raise outcome.down
        await self._writer().write(pool, status)
        self.metrics.show(self.name, status)
        if any(isinstance(e, fx.ReleasePool) for e in effects) and not outcome.failed:
            return None
        return self._delay(effects, outcome.failed, status)

    def _delay(self, effects: tuple[Effect, ...], failed: int, status: PoolStatus) -> float:
        if failed and failed >= sum(not isinstance(e, _REPEATED) for e in effects):
            return self._retries.next_seconds()
        self._retries.reset()
        if any(not isinstance(e, _REPEATED) for e in effects):
            return BUSY_SECONDS if failed else AT_ONCE_SECONDS
        if effects or not any(c.type == "RolloutComplete" and c.status == "True" for c in status.conditions):
            return BUSY_SECONDS
        return EMPTY_SECONDS if not status.groups else IDLE_SECONDS

    def _writer(self) -> StatusWriter:
        if self._status is None:
            self._status = StatusWriter(self.api, self.paths)
        return self._status

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

    async def _observe(self, pool: Json, spec: PoolSpec | None, problem: str, owner: Owner) -> tuple[Desired, Observed]:
        found = await observe(self.api, self.workers, self.paths, owner)
        now = self.now()
        request = (pool["metadata"].get("annotations") or {}).get(REQUEST_ANNOTATION, "")
        desired, refused = await self._desired(pool, spec, problem, found.revisions, request)
        refusals = self._refusals.current(now)
        self._watch = self._watch.look(found.pods, time.monotonic())
        return desired, Observed(
            now=now,
            pods=found.pods,
            revisions=found.revisions,
            drains=found.drains,
            gate=self._gates.run if self._gates is not None else None,
            wall=self._watch.judged,
            unreadable=found.unreadable,
            refusals=(*refusals, refused) if refused is not None else refusals,
            taken=self._refusals.taken(now),
        )

    async def _desired(
        self, pool: Json, spec: PoolSpec | None, problem: str, revisions: tuple[Revision, ...], request: str
    ) -> tuple[Desired, Refusal | None]:
        """What the spec asks for, after a trial on the API server if it is new; and what that refused for now."""
        metadata = pool["metadata"]
        if spec is None:
            # Only its deletion comes here: nothing of the spec is needed to let the workers go.
            told = SpecProblem("SpecUnreadable", problem)
            return Desired(metadata["name"], metadata["uid"], "", deleting=True, problem=told), None
        desired = desired_from(metadata, spec, revisions, default_image=self.default_image, request=request)
        if problem:
            return replace(desired, content="", problem=SpecProblem("UnknownField", problem)), None
        known = any(is_same(r.content, desired.content, empties=r.has_empties) for r in revisions if desired.content)
        owner = Owner(self.name, metadata["uid"], self.paths.namespace)
        if self._trial is None:
            self._trial = TemplateTrial(self.api, self.paths)
        return await self._trial.of(desired, owner, known, self.now())

    async def _ensure(self, pool: Json, owner: Owner) -> None:
        """Finalizer, Service and PodDisruptionBudget, before the first worker is made and now and then."""
        metadata = pool["metadata"]
        if "deletionTimestamp" in metadata or time.monotonic() - self._ensured_at < ENSURE_SECONDS:
            return
        finalizers = metadata.get("finalizers") or []
        if FINALIZER not in finalizers:
            body = {
                "metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": [*finalizers, FINALIZER]}
            }
            await self.api.patch(self.paths.pools(self.name), body)
        service, budget = objects.service(owner), objects.disruption_budget(owner)
        done = [
            await self._apply(self.paths.services(service["metadata"]["name"]), service),
            await self._apply(self.paths.disruption_budgets(budget["metadata"]["name"]), budget),
        ]
        self._ensured_at = time.monotonic() - (0.0 if all(done) else ENSURE_SECONDS - IDLE_SECONDS)

    async def _apply(self, path: str, body: Json) -> bool:
        """Whether it is there now. One that is refused is shown, tried again later, and holds nothing else up.

        Raises:
            ApiError: the API server is away, or somebody else wrote at the same time.
        """
        try:
            await self.api.apply(path, body)
        except ApiError as error:
            if error.is_down or error.is_stale:
                raise
            self._refusals.add(refusal_of(error, f"{body['kind']} {body['metadata']['name']}"), self.now())
            return False
        return True

    async def _sleep(self, delay: float) -> None:
        """Until the delay is over or something changed, but never less than a moment: events come in swarms."""
        await asyncio.sleep(min(delay, AT_ONCE_SECONDS))
        try:
            await asyncio.wait_for(self._wake.wait(), max(0.0, delay - AT_ONCE_SECONDS))
        except TimeoutError:
            return
