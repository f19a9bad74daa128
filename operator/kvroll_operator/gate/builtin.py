"""Source Builtin: kvroll's own trial, old worker against new, through the KV cache that each of them serves with."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from kvroll_core.gate import Answer, Arm, Bar, Batch, Dataset, GateError, GateVerdict, Trial, TrialPolicy
from kvroll_operator.api.gate import Gate
from kvroll_operator.gate.dataset import DatasetReader
from kvroll_operator.gate.finding import Finding, GateSourceError
from kvroll_operator.gate.kept import KeptAnswers, KeptBaseline
from kvroll_operator.gate.scores import ScoringWorker
from kvroll_operator.rollout.act.effects import GateProbe, StartGate

PAUSE_SECONDS = 5.0
BATCHES_AT_ONCE = 3
"""A round: baseline, control and candidate. A worker scores one text at a time anyway."""


class _Arm(Protocol):
    async def answer(self, batch: Batch) -> list[Answer]: ...


class BuiltinSource:
    """One trial a measurement. Without a candidate its measurement is to write the baseline's answers down."""

    pause_seconds = PAUSE_SECONDS

    def __init__(
        self, gate: Gate, effect: StartGate, reader: DatasetReader, kept: KeptBaseline, progress: Callable[[int], None]
    ) -> None:
        self._gate, self._effect, self._reader, self._kept, self._progress = gate, effect, reader, kept, progress
        self._workers: list[_LiveArm] = []
        self._attempt = 0

    async def measure(self) -> Finding:
        """A whole trial.

        Raises:
            GateSourceError: no dataset, no kept baseline, a worker that does not answer, or a bar that the dataset cannot measure.
        """
        dataset = await self._reader.read(self._gate.dataset)
        # Kept answers belong to one order of questions; otherwise another attempt is another draw.
        is_fixed = self._effect.is_kept or self._effect.candidate is None
        seed = seed_of(self._effect.plan) + (0 if is_fixed else self._attempt)
        self._attempt += 1
        trial = make_trial(self._gate, dataset, seed)
        if self._effect.candidate is None:
            return await self._keep(trial, dataset, seed)
        new = self._open(self._effect.candidate)
        if self._effect.is_kept:
            found = await self._kept.read(self._effect, dataset.digest, seed)
            old: _Arm = _KeptArm(found)
            name = found.worker
        else:
            old = self._open(self._effect.baseline)
            name = _name(self._effect.baseline)
        await self._decide(trial, old, new)
        evidence = trial.evidence().named(name, _name(self._effect.candidate))
        return Finding(
            evidence.verdict,
            evidence.reason[:2000],
            evidence.samples,
            {"evidence": evidence.digest, **evidence.to_json()},
        )

    async def close(self) -> None:
        """Ends the channels."""
        for worker in self._workers:
            await worker.close()
        self._workers.clear()

    def _open(self, probe: GateProbe | None) -> "_LiveArm":
        if probe is None:
            raise GateSourceError("no old worker answers: nothing to measure against")
        known = next((w for w in self._workers if w.probe == probe), None)
        if known is None:
            known = _LiveArm(probe)
            self._workers.append(known)
        return known

    async def _decide(self, trial: Trial, old: _Arm, new: _Arm) -> None:
        async def answered(batch: Batch) -> tuple[Batch, list[Answer]]:
            return batch, await (new if batch.arm is Arm.CANDIDATE else old).answer(batch)

        tasks: set[asyncio.Task[tuple[Batch, list[Answer]]]] = set()
        try:
            while not trial.decided:
                while len(tasks) < BATCHES_AT_ONCE and (batch := trial.ask()) is not None:
                    tasks.add(asyncio.create_task(answered(batch)))
                if not tasks:
                    trial.stop("every prompt was asked, and nothing is decided")
                    return
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    batch, answers = task.result()
                    # Its arithmetic takes long enough to hold the other pools up.
                    await asyncio.to_thread(trial.take, batch.id, answers)
                self._progress(sum(compared for _, compared, _ in trial.progress()))
        except GateError as error:
            raise GateSourceError(str(error)) from error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, trial: Trial, dataset: Dataset, seed: int) -> Finding:
        old = self._open(self._effect.baseline)
        answers: dict[str, Sequence[Answer]] = {}
        while (batch := trial.ask((Arm.BASELINE, Arm.CONTROL))) is not None:
            answers[batch.id] = await old.answer(batch)
            self._progress(len(answers))
        found = KeptAnswers(_name(self._effect.baseline), dataset.digest, seed, answers)
        num_bytes = await self._kept.write(self._effect, found)
        reason = f"{len(answers)} batches of {_name(self._effect.baseline)} are kept, {num_bytes} bytes"
        return Finding(GateVerdict.PASS, reason, len(answers), {"datasetDigest": dataset.digest})


class _LiveArm:
    """A worker that answers now."""

    def __init__(self, probe: GateProbe) -> None:
        self.probe = probe
        self._worker = ScoringWorker(probe)

    async def answer(self, batch: Batch) -> list[Answer]:
        return [await self._worker.answer(ask) for ask in batch.asks]

    async def close(self) -> None:
        await self._worker.close()


class _KeptArm:
    """What a worker answered before it was drained."""

    def __init__(self, found: KeptAnswers) -> None:
        self._found = found

    async def answer(self, batch: Batch) -> list[Answer]:
        if batch.id not in self._found.answers:
            raise GateSourceError(f"the kept baseline has no answers to {batch.id}: it was written by another version")
        return list(self._found.answers[batch.id])


def make_trial(gate: Gate, dataset: Dataset, seed: int) -> Trial:
    """The trial that a spec asks for.

    Raises:
        GateSourceError: a bar that is none, or that the dataset cannot measure.
    """
    try:
        bars = [Bar(metric.name, metric.min, metric.max) for metric in gate.metrics]  # type: ignore[arg-type]
        policy = TrialPolicy(min_samples=gate.min_samples) if gate.min_samples is not None else TrialPolicy()
        return Trial(dataset, bars, policy, seed)
    except GateError as error:
        raise GateSourceError(str(error)) from error


def seed_of(plan: str) -> int:
    """A draw of its own for each rollout, the same after a restart."""
    return int.from_bytes(hashlib.sha256(plan.encode()).digest()[:4])


def _name(probe: GateProbe | None) -> str:
    return f"{probe.worker_id} (revision {probe.revision})" if probe else ""
