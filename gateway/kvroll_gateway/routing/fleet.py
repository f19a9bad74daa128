"""All workers of this gateway: one Attachment each, kept in step with which workers exist."""

import asyncio
import time
from collections.abc import Iterable, Mapping

from kvroll.v1 import inference_pb2 as inf
from kvroll_gateway.metrics import GatewayMetrics
from kvroll_gateway.routing.attach import Attachment, Events
from kvroll_gateway.routing.liveness import Patience
from kvroll_gateway.routing.pick import Candidate, pick
from kvroll_gateway.routing.workers import WorkerTarget
from kvroll_gateway.sessions.messages import Send
from kvroll_gateway.sessions.ports import InstanceLoad, Loss, NoWorker, Seeker

_REMEMBER_MODEL_SECONDS = 600.0  # between two workers a model is "unavailable", not "unknown"


class Fleet:
    """Implements `sessions.ports.Workers`; `update` is told the whole set of workers after every change."""

    def __init__(self, gateway_id: str, events: Events, metrics: GatewayMetrics, patience: Patience) -> None:
        self._gateway_id = gateway_id
        self._events = events
        self._metrics = metrics
        self._patience = patience
        self._attachments: dict[str, Attachment] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._precisions: dict[str, tuple[str, str]] = {}
        self._models: dict[str, float] = {}
        self._lost: set[str] = set()  # counted, and not back yet
        self.discovered = False

    @property
    def precisions(self) -> Mapping[str, tuple[str, str]]:
        return self._precisions

    def update(self, targets: Iterable[WorkerTarget]) -> None:
        """Attaches to new workers and lets go of those that are gone, whose sessions are lost for certain."""
        wanted = {target.key: target for target in targets}
        self.discovered = True
        for key in self._attachments.keys() - wanted.keys():
            self._remove(key)
        for key, target in wanted.items():
            known = self._attachments.get(key)
            if known is not None and known.target.address == target.address:
                known.target = target
                continue
            if known is not None:
                self._remove(key)
            attachment = Attachment(target, self._gateway_id, self, self._patience)
            self._attachments[key] = attachment
            self._tasks[key] = asyncio.create_task(attachment.run(), name=f"attach {target.name}")

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *self._leaving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _remove(self, key: str) -> None:
        attachment = self._attachments.pop(key)
        task = self._tasks.pop(key)
        task.cancel()
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        if attachment.instance_id is not None:
            self._precisions.pop(attachment.instance_id, None)
            self.lost(attachment.instance_id, certain=True, reason=Loss.REMOVED)

    # --- sessions.ports.Workers ----------------------------------------------------------------------------------

    def send(self, send: Send) -> None:
        for attachment in self._attachments.values():
            if attachment.instance_id == send.instance_id:
                attachment.send(send.message)
                return

    def reachable(self, instance_id: str) -> bool:
        return any(one.reachable for one in self._attachments.values() if one.instance_id == instance_id)

    def place(self, seeker: Seeker, load: InstanceLoad) -> str | NoWorker:
        return pick(self._candidates(), seeker, load, self.models(), self._num_awaited(seeker.model))

    def models(self) -> list[str]:
        """The models that workers serve, or served within the last minutes."""
        horizon_seconds = time.monotonic() - _REMEMBER_MODEL_SECONDS
        for attachment in self._attachments.values():
            if attachment.welcome is not None:
                if attachment.welcome.model not in self._models:
                    self._metrics.serves(attachment.welcome.model)
                self._models[attachment.welcome.model] = time.monotonic()
        self._models = {model: seen for model, seen in self._models.items() if seen >= horizon_seconds}
        return sorted(self._models)

    def max_model_len(self, model: str) -> int | None:
        """The longest context that any worker of `model` takes, in tokens."""
        welcomes = [one.welcome for one in self._attachments.values() if one.welcome is not None]
        return max((one.max_model_len for one in welcomes if one.model == model), default=None)

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(one.welcome.worker.instance_id, one.welcome.model, one.target.admitted, one.admitting)
            for one in self._attachments.values()
            if one.live and one.welcome is not None
        ]

    def _num_awaited(self, model: str) -> int:
        """Workers that have no stream now and may have one soon: those that are starting, restarting or cut off."""
        return sum(
            not one.live and not one.target.leaving and (one.welcome is None or one.welcome.model == model)
            for one in self._attachments.values()
        )

    # --- routing.attach.Events: remembers, then passes on ----------------------------------------------------------

    def received(self, instance_id: str, message: inf.AttachResponse) -> None:
        self._events.received(instance_id, message)

    def connected(self, instance_id: str, held: Iterable[inf.HeldSession]) -> None:
        self._lost.discard(instance_id)
        for attachment in self._attachments.values():
            if attachment.instance_id == instance_id and attachment.welcome is not None:
                descriptor = attachment.welcome.descriptor
                self._precisions[instance_id] = (descriptor.weights_dtype, descriptor.kv_format)
        self._count()
        self._events.connected(instance_id, held)

    def lost(self, instance_id: str, *, certain: bool, reason: Loss) -> None:
        self._count()
        if instance_id not in self._lost:
            self._lost.add(instance_id)
            self._metrics.workers_lost.labels(reason).inc()
        if certain:  # it will not be heard of again
            self._lost.discard(instance_id)
        self._events.lost(instance_id, certain=certain, reason=reason)

    def _count(self) -> None:
        self._metrics.workers.set(sum(one.live for one in self._attachments.values()))
