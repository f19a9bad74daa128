"""Carries out effects, each idempotently. An effect whose world moved on fails harmlessly: the next pass observes afresh and
decides again.

Every pass begins with lists that the API server answers from a quorum, so it sees all its own earlier writes and needs no cache.
"""

from dataclasses import dataclass, replace
from typing import Any, assert_never

import structlog

from kvroll_operator.api.gate import Gate
from kvroll_operator.api.status import DrainStatus
from kvroll_operator.cluster import events, objects, pods
from kvroll_operator.cluster.client import Api, ApiError
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import FINALIZER, LABEL, Paths
from kvroll_operator.cluster.workers import WorkerError, Workers
from kvroll_operator.gate.runner import GateRunner
from kvroll_operator.rollout import effects as fx
from kvroll_operator.rollout.instant import instant
from kvroll_operator.rollout.observed import Pod

log = structlog.get_logger()

EMPTY_GRACE_SECONDS = 10
"""Time to exit for a worker that we delete: it holds no session, by its own seal or because it never had one."""


@dataclass(frozen=True)
class Executor:
    """The hands of one pool's loop. `gate` is the spec's as the same pass read it."""

    api: Api
    workers: Workers
    owner: Owner
    paths: Paths
    gates: GateRunner
    gate: Gate | None

    async def execute(self, effects: tuple[fx.Effect, ...]) -> int:
        """Does what can be done now; returns how many effects failed."""
        failed = 0
        for effect in effects:
            try:
                await self._do(effect)
            except ApiError as error:
                failed += 1
                level = log.debug if error.is_stale else log.warning
                level("effect_failed", pool=self.owner.name, effect=type(effect).__name__, error=str(error))
                continue
            except WorkerError as error:
                failed += 1
                log.warning(
                    "worker_call_failed",
                    pool=self.owner.name,
                    effect=type(effect).__name__,
                    code=str(error.code()),
                    error=error.details(),
                )
                continue
            await self._tell(effect)
        return failed

    async def _do(self, effect: fx.Effect) -> None:
        match effect:
            case fx.CreateRevision():
                await self._create_revision(effect)
            case fx.WriteRecord():
                await self._write_record(effect)
            case fx.CreatePod():
                await self.api.create(self.paths.pods(), pods.worker_pod(self.owner, effect))
            case fx.LabelAdmitted():
                await self._label(effect.pod, "admitted", "true" if effect.admitted else "false")
            case fx.Unprotect():
                await self._label(effect.pod, "protected", "false")
            case fx.DeletePod():
                await self._delete_pod(effect.pod)
            case fx.DeleteRevision():
                revision = effect.revision
                await self.api.delete(
                    self.paths.revisions(revision.name), uid=revision.uid, resource_version=revision.resource_version
                )
            case fx.ReleasePool():
                await self._release()
            case fx.StartGate() | fx.StopGate():
                self._run_gate(effect)
            case fx.SetAdmission():
                await self.workers.set_admission(effect)
            case _:
                await self._do_drain(effect)

    async def _do_drain(
        self, effect: fx.CreateDrain | fx.DrainWorker | fx.RecordDrain | fx.SealWorker | fx.CancelDrain | fx.DeleteDrain
    ) -> None:
        match effect:
            case fx.CreateDrain():
                await self.api.create(self.paths.drains(), objects.drain(self.owner, effect))
            case fx.DrainWorker():
                policy = (await self.api.get(self.paths.drains(effect.drain.name)))["spec"]
                await self.workers.drain(effect, policy)
            case fx.RecordDrain():
                await self._record_drain(effect)
            case fx.SealWorker():
                await self._seal(effect)
            case fx.CancelDrain():
                await self.workers.cancel_drain(effect)
                await self.api.delete(self.paths.drains(effect.drain.name), uid=effect.drain.uid)
            case fx.DeleteDrain():
                await self.api.delete(self.paths.drains(effect.drain.name), uid=effect.drain.uid)
            case _:
                assert_never(effect)

    def _run_gate(self, effect: fx.StartGate | fx.StopGate) -> None:
        if isinstance(effect, fx.StopGate):
            self.gates.stop()
        elif self.gate is not None and self.gate.hash == effect.gate_hash:
            self.gates.start(effect, self.gate)

    async def _create_revision(self, effect: fx.CreateRevision) -> None:
        """By apply: `data` is immutable byte for byte, a POST stores the client's bytes, and a later patch would re-encode them."""
        body = objects.revision(self.owner, effect)
        await self.api.apply(self.paths.revisions(body["metadata"]["name"]), body)

    async def _write_record(self, effect: fx.WriteRecord) -> None:
        metadata = {"resourceVersion": effect.revision.resource_version, "annotations": effect.record.to_annotations()}
        await self.api.patch(self.paths.revisions(effect.revision.name), {"metadata": metadata})

    async def _delete_pod(self, pod: Pod) -> None:
        await self.api.delete(
            self.paths.pods(pod.name),
            uid=pod.uid,
            resource_version=pod.resource_version,
            grace_seconds=EMPTY_GRACE_SECONDS,
        )

    async def _label(self, pod: Pod, label: str, value: str) -> None:
        metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version, "labels": {f"{LABEL}{label}": value}}
        await self.api.patch(self.paths.pods(pod.name), {"metadata": metadata})

    async def _record_drain(self, effect: fx.RecordDrain) -> None:
        drain = effect.drain
        status = DrainStatus(
            phase=effect.phase,
            remaining=effect.remaining,
            receipt=drain.receipt,
            last_error=effect.last_error,
            last_progress_time=instant(effect.progressed_at),
            **{name: getattr(effect.tally, name) for name in effect.tally.__dataclass_fields__},
        )
        body: dict[str, Any] = {"metadata": {"uid": drain.uid}, "status": status.model_dump(by_alias=True)}
        await self.api.patch(f"{self.paths.drains(drain.name)}/status", body)

    async def _seal(self, effect: fx.SealWorker) -> None:
        sealed = await self.workers.seal(effect)
        if sealed is None:
            return
        receipt, counters = sealed
        drain = replace(effect.drain, receipt=receipt)
        tally = drain.tally.largest(counters)
        await self._record_drain(fx.RecordDrain(drain, "Sealed", tally, 0, drain.last_error, drain.progressed_at))

    async def _release(self) -> None:
        pool = await self.api.get(self.paths.pools(self.owner.name))
        metadata = pool["metadata"]
        finalizers = [f for f in metadata.get("finalizers", []) if f != FINALIZER]
        body = {
            "metadata": {
                "uid": self.owner.uid,
                "resourceVersion": metadata["resourceVersion"],
                "finalizers": finalizers,
            }
        }
        await self.api.patch(self.paths.pools(self.owner.name), body)

    async def _tell(self, effect: fx.Effect) -> None:
        what = events.about(effect)
        if what is None:
            return
        log.info("did", pool=self.owner.name, reason=what[0], note=what[1])
        try:
            await self.api.create(self.paths.events(), events.event(self.owner, *what))
        except ApiError as error:
            log.warning("event_failed", pool=self.owner.name, error=str(error))
