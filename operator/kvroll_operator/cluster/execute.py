"""Carries out effects, each idempotently. An effect whose world moved on fails harmlessly: the next pass observes afresh and
decides again. One that fails stops no other, unless the API server itself is away.

Every pass begins with lists that the API server answers from a quorum, so it sees all its own earlier writes and needs no cache.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import structlog

from kvroll_operator.api.gate import Gate
from kvroll_operator.api.names import ADMITTED_AT_ANNOTATION, FINALIZER, JOURNAL_FINALIZER, LABEL, pod_name, slot_labels
from kvroll_operator.api.parts import instant
from kvroll_operator.api.status import DrainStatus
from kvroll_operator.cluster import events, objects, pods
from kvroll_operator.cluster.client import Api, ApiError, Json
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.observe import is_owned
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.cluster.refusals import Refusals, refusal_of
from kvroll_operator.cluster.workers import WorkerError, Workers
from kvroll_operator.gate.runner import GateRunner
from kvroll_operator.rollout.act import effects as fx
from kvroll_operator.rollout.decide import writes
from kvroll_operator.rollout.facts.observed import TALLY_WORDS, Pod, Refusal
from kvroll_operator.rollout.transition import Effect

log = structlog.get_logger()

EMPTY_GRACE_SECONDS = 10
"""Time to exit for a worker that we delete: it holds no session, by its own seal or because it never had one."""
AT_ONCE = 16
"""Effects on different objects that go on at a time: a worker that hangs holds up its own, not the pool's."""


@dataclass
class Outcome:
    """What became of a pass's effects. `down`: the API server is away, the rest was left for the next pass."""

    failed: int = 0
    down: ApiError | None = None


@dataclass(frozen=True)
class Executor:
    """The hands of one pool's loop. `gate` is the spec's as the same pass read it."""

    api: Api
    workers: Workers
    owner: Owner
    paths: Paths
    gates: GateRunner
    gate: Gate | None
    now: Callable[[], float]
    refusals: Refusals = field(default_factory=Refusals)

    async def execute(self, effects: tuple[Effect, ...]) -> Outcome:
        """Does what can be done now: those on one object in their order, those on different ones side by side."""
        outcome, slots = Outcome(), asyncio.Semaphore(AT_ONCE)
        chains: dict[str, list[Effect]] = {}
        for effect in effects:
            chains.setdefault(_subject(effect), []).append(effect)

        async def follow(chain: list[Effect]) -> None:
            async with slots:
                for effect in chain:
                    if outcome.down is not None:
                        return
                    await self._try(effect, outcome)

        await asyncio.gather(*(follow(chain) for chain in chains.values()))
        return outcome

    async def _try(self, effect: Effect, outcome: Outcome) -> None:
        kind = type(effect).__name__
        try:
            await self._do(effect)
            await self._tell(events.about(effect))
            return
        except ApiError as error:
            level = log.debug if error.is_stale else log.warning
            level("effect_failed", pool=self.owner.name, effect=kind, error=str(error))
            if error.is_down:
                outcome.down = error
        except WorkerError as error:
            told = {"code": str(error.code()), "error": error.details()}
            log.warning("worker_call_failed", pool=self.owner.name, effect=kind, **told)
        except Exception:
            # One effect that cannot be carried out, whatever the reason, is one effect.
            log.exception("effect_crashed", pool=self.owner.name, effect=kind)
        outcome.failed += 1

    async def _do(self, effect: Effect) -> None:
        match effect:
            case writes.CreateRevision():
                await self._create_revision(effect)
            case writes.WriteRecord():
                await self._write_record(effect)
            case fx.CreatePod():
                await self._create_pod(effect)
            case fx.LabelAdmitted():
                await self._admit(effect)
            case fx.RestoreLabels():
                await self._restore_labels(effect.pod)
            case fx.Unprotect():
                await self._label(effect.pod, {f"{LABEL}protected": "false"})
            case fx.DeletePod():
                await self._delete_pod(effect)
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
        self,
        effect: fx.CreateDrain
        | fx.DrainWorker
        | fx.RecordDrain
        | fx.SealWorker
        | fx.CancelDrain
        | fx.ReleaseDrain
        | fx.DeleteDrain,
    ) -> None:
        match effect:
            case fx.CreateDrain():
                await self.api.create(self.paths.drains(), objects.drain(self.owner, effect))
            case fx.DrainWorker():
                await self.workers.drain(effect)
            case fx.RecordDrain():
                await self._record_drain(effect)
            case fx.SealWorker():
                await self._seal(effect)
            case fx.CancelDrain():
                await self._cancel_drain(effect)
            case fx.ReleaseDrain():
                await self._release_drain(effect)
            case fx.DeleteDrain():
                await self.api.delete(self.paths.drains(effect.drain.name), uid=effect.drain.uid)
            case _:
                assert_never(effect)

    def _run_gate(self, effect: fx.StartGate | fx.StopGate) -> None:
        if isinstance(effect, fx.StopGate):
            self.gates.stop()
        elif self.gate is not None and self.gate.hash == effect.gate_hash:
            self.gates.start(effect, self.gate)

    async def _create_revision(self, effect: writes.CreateRevision) -> None:
        """By apply: `data` is immutable byte for byte, a POST stores the client's bytes, and a later patch would re-encode them."""
        body = objects.revision(self.owner, effect)
        await self.api.apply(self.paths.revisions(body["metadata"]["name"]), body)

    async def _write_record(self, effect: writes.WriteRecord) -> None:
        metadata = {"resourceVersion": effect.revision.resource_version, "annotations": effect.record.to_annotations()}
        await self.api.patch(self.paths.revisions(effect.revision.name), {"metadata": metadata})

    async def _create_pod(self, effect: fx.CreatePod) -> None:
        content = effect.revision.content
        name = pod_name(self.owner.name, effect.revision.short, effect.group, effect.index, effect.incarnation)
        try:
            await self.api.create(self.paths.pods(), pods.worker_pod(self.owner, effect))
        except pods.TemplateError as error:
            await self._refused(Refusal(f"Pod {name}", "TemplateInvalid", str(error), content))
            raise ApiError(422, str(error)) from error
        except ApiError as error:
            if error.status == 409:
                await self._meet(name)
            elif not error.is_down:
                await self._refused(refusal_of(error, f"Pod {name}", content))
            raise
        self.refusals.drop(content)

    async def _meet(self, name: str) -> None:
        """The Pod whose name is taken: ours, and somebody took its labels, or another's, and the name is not free."""
        found = await self.api.get(self.paths.pods(name))
        if not is_owned(found, self.owner.uid):
            self.refusals.take(name, self.now())
            return
        _, revision, group, index, incarnation = name.rsplit("-", 4)
        labels = {f"{LABEL}pool": self.owner.name, **slot_labels(revision, int(group), int(index), int(incarnation))}
        await self.api.patch(self.paths.pods(name), {"metadata": {"uid": found["metadata"]["uid"], "labels": labels}})

    async def _refused(self, refusal: Refusal) -> None:
        if self.refusals.add(refusal, self.now()):
            await self._tell(("CreateRefused", f"{refusal.what}: {refusal.reason}: {refusal.message}"))

    async def _delete_pod(self, effect: fx.DeletePod) -> None:
        pod = effect.pod
        await self.api.delete(
            self.paths.pods(pod.name),
            uid=pod.uid,
            resource_version=pod.resource_version,
            grace_seconds=None if effect.may_hold_sessions else EMPTY_GRACE_SECONDS,
        )

    async def _admit(self, effect: fx.LabelAdmitted) -> None:
        """The time goes with the label: a worker must have served for minReadySeconds, and nothing else says since when it does."""
        at = {ADMITTED_AT_ANNOTATION: instant(self.now())} if effect.admitted else {}
        await self._label(effect.pod, {f"{LABEL}admitted": "true" if effect.admitted else "false"}, at)

    async def _restore_labels(self, pod: Pod) -> None:
        labels = {**slot_labels(pod.revision, pod.group, pod.index, pod.incarnation), f"{LABEL}protected": "true"}
        if pod.admitted is False:
            labels[f"{LABEL}admitted"] = "false"  # also where only other evidence says that it was let in
        await self._label(pod, labels)

    async def _label(self, pod: Pod, labels: dict[str, str], annotations: Json | None = None) -> None:
        metadata: Json = {"uid": pod.uid, "resourceVersion": pod.resource_version, "labels": labels}
        if annotations:
            metadata["annotations"] = annotations
        await self.api.patch(self.paths.pods(pod.name), {"metadata": metadata})

    async def _record_drain(self, effect: fx.RecordDrain) -> None:
        drain = effect.drain
        status = DrainStatus(
            phase=effect.phase,
            remaining=effect.remaining,
            receipt=drain.receipt,
            last_error=effect.last_error,
            last_progress_time=instant(effect.progressed_at),
            **{name: getattr(effect.tally, name) for name in TALLY_WORDS},
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

    async def _cancel_drain(self, effect: fx.CancelDrain) -> None:
        """The journal says Cancelled before the object goes, so that it is not taken for a user's doing."""
        drain = effect.drain
        await self.workers.cancel_drain(effect.instance_id, effect.address, drain.uid)
        tally = drain.tally.largest(effect.tally)
        await self._record_drain(
            fx.RecordDrain(drain, "Cancelled", tally, drain.remaining, drain.last_error, drain.progressed_at)
        )
        await self.api.delete(self.paths.drains(drain.name), uid=drain.uid)

    async def _release_drain(self, effect: fx.ReleaseDrain) -> None:
        drain = effect.drain
        if effect.instance_id:
            await self.workers.cancel_drain(effect.instance_id, effect.address, drain.uid)
        await self._drop_finalizer(self.paths.drains(drain.name), drain.uid, JOURNAL_FINALIZER)

    async def _release(self) -> None:
        """The finalizer goes last; workers whose label somebody took are found first, and leave like the others."""
        for item in await self.api.list(self.paths.pods()):
            metadata = item["metadata"]
            labels = metadata.get("labels") or {}
            if is_owned(item, self.owner.uid) and labels.get(f"{LABEL}pool") != self.owner.name:
                body = {"metadata": {"uid": metadata["uid"], "labels": {f"{LABEL}pool": self.owner.name}}}
                await self.api.patch(self.paths.pods(metadata["name"]), body)
                raise ApiError(409, f"Pod {metadata['name']} is left")
        await self._drop_finalizer(self.paths.pools(self.owner.name), self.owner.uid, FINALIZER)

    async def _drop_finalizer(self, path: str, uid: str, finalizer: str) -> None:
        metadata = (await self.api.get(path))["metadata"]
        finalizers = [f for f in metadata.get("finalizers") or [] if f != finalizer]
        version = {"uid": uid, "resourceVersion": metadata["resourceVersion"]}
        await self.api.patch(path, {"metadata": {**version, "finalizers": finalizers}})

    async def _tell(self, what: tuple[str, str] | None) -> None:
        if what is None:
            return
        log.info("did", pool=self.owner.name, reason=what[0], note=what[1])
        try:
            await self.api.create(self.paths.events(), events.event(self.owner, *what))
        except ApiError as error:
            log.warning("event_failed", pool=self.owner.name, error=str(error))


def _subject(effect: Effect) -> str:
    """The object that an effect is about."""
    match effect:
        case fx.CreatePod():
            return f"slot {effect.group}/{effect.index}/{effect.revision.short}"
        case (
            fx.LabelAdmitted()
            | fx.RestoreLabels()
            | fx.Unprotect()
            | fx.DeletePod()
            | fx.SetAdmission()
            | fx.CreateDrain()
        ):
            return f"pod {effect.pod.uid}"
        case (
            fx.DrainWorker()
            | fx.RecordDrain()
            | fx.SealWorker()
            | fx.CancelDrain()
            | fx.ReleaseDrain()
            | fx.DeleteDrain()
        ):
            return f"pod {effect.drain.pod_uid}"
        case _:
            return "pool"
