"""The runs of one pool's gate: at most one at a time, observed as a value."""

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate import Gate, GateSource
from kvroll_operator.gate.finding import Finding, GateSourceError, digest_of
from kvroll_operator.gate.source import Source
from kvroll_operator.rollout.act.effects import StartGate
from kvroll_operator.rollout.facts.observed import GateRun

log = structlog.get_logger()
Progress = Callable[[int], None]


class Opener(Protocol):
    """Makes the source of a run; what cannot be made raises GateSourceError."""

    def __call__(self, effect: StartGate, gate: Gate, progress: Progress) -> Source: ...


@dataclass
class GateRunner:
    """Measures until there is a verdict, or the limits or the time of the spec are used up. `done` is called when a run is over."""

    opener: Opener
    now: Callable[[], float]
    done: Callable[[], None]
    run: GateRun | None = None
    _task: asyncio.Task[None] | None = field(default=None, repr=False)
    _ending: set[asyncio.Task[None]] = field(default_factory=set, repr=False)

    def start(self, effect: StartGate, gate: Gate) -> None:
        """Begins that run; one under way is ended, and its result is lost."""
        self.stop()
        self.run = GateRun(
            plan=effect.plan,
            point=effect.point,
            gate_hash=effect.gate_hash,
            baseline=effect.baseline.instance_id if effect.baseline else "",
            candidate=effect.candidate.instance_id if effect.candidate else "",
            started_at=self.now(),
        )
        self._task = asyncio.create_task(self._work(effect, gate, self.run), name=f"gate {effect.plan} {effect.point}")

    def stop(self) -> None:
        """Ends the run, if there is one, and forgets it."""
        self.run = None
        if self._task is not None and not self._task.done():
            self._ending.add(self._task)
            self._task.add_done_callback(self._ending.discard)
            self._task.cancel()
        self._task = None

    async def close(self) -> None:
        """Ends the run and waits until it has let go of everything."""
        self.stop()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _work(self, effect: StartGate, gate: Gate, run: GateRun) -> None:
        mine = asyncio.current_task()

        def progress(samples: int) -> None:
            if self._task is mine and self.run is not None:
                self.run = replace(self.run, samples=samples)

        found = await self._found(effect, gate, progress)
        if self._task is not mine:
            return
        old, new = effect.baseline, effect.candidate
        report = found.report(
            rollout=effect.plan,
            point=effect.point,
            gateHash=effect.gate_hash,
            source=gate.source.value,
            baselineWorker=old.worker_id if old else "",
            candidateWorker=new.worker_id if new else "",
            candidateRevision=new.revision if new else "",
        )
        self.run = replace(
            run,
            is_over=True,
            samples=found.samples,
            verdict=found.verdict.value,
            reason=found.reason,
            digest=digest_of(report),
            report=report,
        )
        log.info("gate_measured", rollout=effect.plan, point=effect.point, verdict=found.verdict, reason=found.reason)
        self.done()

    async def _found(self, effect: StartGate, gate: Gate, progress: Progress) -> Finding:
        last = ""
        try:
            async with asyncio.timeout(gate.timeout_seconds):
                return await _until_decided(self.opener(effect, gate, progress), effect, gate, progress)
        except TimeoutError:
            last = f"no verdict within {gate.timeout_seconds} s"
        except GateSourceError as error:
            last = str(error)
        except Exception as error:
            # Whatever it is, it must neither end the operator nor pass for a verdict.
            where = traceback.format_exc(limit=-8)
            log.error("gate_crashed", rollout=effect.plan, point=effect.point, traceback=where)
            last = f"the measurement crashed: {type(error).__name__}: {error}"
        return Finding(GateVerdict.INCONCLUSIVE, last[:2000])


async def _until_decided(source: Source, effect: StartGate, gate: Gate, progress: Progress) -> Finding:
    """Measurements until one passes (Prometheus: `minSamples` of them), or more fail or tell nothing than the spec forgives."""
    counts = dict.fromkeys(GateVerdict, 0)
    wanted = (gate.min_samples or 1) if gate.source is GateSource.PROMETHEUS else 1
    try:
        while True:
            found = await _one(source)
            counts[found.verdict] += 1
            samples = counts[GateVerdict.PASS] if gate.source is GateSource.PROMETHEUS else found.samples
            progress(samples)
            limits = {GateVerdict.FAIL: gate.failure_limit, GateVerdict.INCONCLUSIVE: gate.inconclusive_limit}
            is_over = counts[found.verdict] > limits.get(found.verdict, wanted - 1)
            if is_over:
                told = {"failed": counts[GateVerdict.FAIL], "inconclusive": counts[GateVerdict.INCONCLUSIVE]}
                evidence = {**found.evidence, "measurements": {"passed": counts[GateVerdict.PASS], **told}}
                return replace(found, samples=samples, evidence=evidence)
            log.info("gate_again", rollout=effect.plan, point=effect.point, verdict=found.verdict, reason=found.reason)
            await asyncio.sleep(source.pause_seconds)
    finally:
        await source.close()


async def _one(source: Source) -> Finding:
    try:
        return await source.measure()
    except GateSourceError as error:
        return Finding(GateVerdict.INCONCLUSIVE, str(error)[:2000])
