"""The one Attach stream to one worker: connects, names itself, reads always, reconnects, and says when the worker counts as lost."""

import asyncio
import random
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import grpc
import structlog

from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import inference_pb2_grpc as inf_grpc
from kvroll.wire.channels import client_options
from kvroll_gateway.routing.liveness import Hearing, Patience
from kvroll_gateway.routing.workers import WorkerTarget
from kvroll_gateway.sessions.ports import Loss

if TYPE_CHECKING:
    Call = grpc.aio.StreamStreamCall[inf.AttachRequest, inf.AttachResponse]
else:
    Call = object

PROTOCOL_VERSION = 1
_WELCOME_SECONDS = 5.0
_FIRST_BACKOFF_SECONDS = 0.1
_MAX_BACKOFF_SECONDS = 1.0
_WATCH_SECONDS = 0.25

log = structlog.get_logger(__name__)


class Events(Protocol):
    """Who hears what the stream brings."""

    def received(self, instance_id: str, message: inf.AttachResponse) -> None: ...
    def connected(self, instance_id: str, held: Iterable[inf.HeldSession]) -> None: ...
    def lost(self, instance_id: str, *, certain: bool, reason: Loss) -> None: ...


class WorkerMuteError(Exception):
    """The stream is up and of no use: nothing comes on it, or the engine behind it is stuck."""

    def __init__(self, reason: Loss, seconds: float) -> None:
        super().__init__(f"the worker is {reason} for {seconds:.1f} s")
        self.reason = reason


class Attachment:
    """Keeps the stream to `target`; `welcome` is the newest greeting, kept while the stream is down."""

    def __init__(self, target: WorkerTarget, gateway_id: str, events: Events, patience: Patience) -> None:
        self.target = target
        self.welcome: inf.Welcome | None = None
        self.admitting = False
        self._gateway_id = gateway_id
        self._events = events
        self._patience = patience
        self._outbox: asyncio.Queue[inf.AttachRequest] | None = None
        self._lost_reported = False
        self._hearing = Hearing(time.monotonic(), _WATCH_SECONDS)
        self._beat: inf.Heartbeat | None = None

    @property
    def instance_id(self) -> str | None:
        return self.welcome.worker.instance_id if self.welcome is not None else None

    @property
    def live(self) -> bool:
        return self._outbox is not None

    @property
    def reachable(self) -> bool:
        """False before the first Welcome and once `lost` was reported, until the next Welcome."""
        return self.welcome is not None and not self._lost_reported

    def send(self, message: inf.AttachRequest) -> None:
        """Queues the message; drops it while there is no stream."""
        if self._outbox is not None:
            self._outbox.put_nowait(message)

    async def run(self) -> None:
        """Connects again and again, until cancelled."""
        backoff_seconds, down_since_seconds = _FIRST_BACKOFF_SECONDS, time.monotonic()
        options = client_options(self._patience.silent_seconds)
        while True:
            reason = Loss.SILENT
            try:
                async with grpc.aio.insecure_channel(self.target.address, options=options) as channel:
                    await self._converse(inf_grpc.InferenceServiceStub(channel))
            except WorkerMuteError as error:
                log.warning("worker_mute", worker=self.target.name, reason=error.reason, error=str(error))
                self._outbox = None
                self._report_lost(error.reason)
            except (grpc.RpcError, TimeoutError, asyncio.InvalidStateError) as error:
                details = str(error.details()) if isinstance(error, grpc.aio.AioRpcError) else "no Welcome in time"
                reason = Loss.REFUSED if "refused" in details else Loss.SILENT
                log.debug("attach_broken", worker=self.target.name, details=details)
            if self._outbox is not None:  # there was a stream
                self._outbox = None
                self._hearing.silent_seconds(time.monotonic())
                backoff_seconds, down_since_seconds = _FIRST_BACKOFF_SECONDS, self._hearing.heard_seconds
            self._judge(time.monotonic() - down_since_seconds, reason)
            await asyncio.sleep(backoff_seconds * random.uniform(0.7, 1.0))
            backoff_seconds = min(backoff_seconds * 2, _MAX_BACKOFF_SECONDS)

    def _judge(self, down_seconds: float, reason: Loss) -> None:
        refused = reason is Loss.REFUSED
        if down_seconds >= (self._patience.refused_seconds if refused else self._patience.silent_seconds):
            self._report_lost(reason)

    def _report_lost(self, reason: Loss) -> None:
        if self.instance_id is not None and not self._lost_reported:
            self._lost_reported = True
            self._events.lost(self.instance_id, certain=False, reason=self._cause(reason))

    def _cause(self, reason: Loss) -> Loss:
        """A worker that the cluster is taking away did not go because of what it held."""
        return Loss.REMOVED if self.target.leaving else reason

    async def _converse(self, stub: "inf_grpc.InferenceServiceAsyncStub") -> None:
        """One life of the stream; returns or raises when it is over."""
        outbox: asyncio.Queue[inf.AttachRequest] = asyncio.Queue()
        hello = inf.Hello(gateway_id=self._gateway_id, protocol_version=PROTOCOL_VERSION)
        call = stub.Attach()
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(_WELCOME_SECONDS):
                await call.write(inf.AttachRequest(hello=hello))
                first = await _read(call)
            if first is None or first.WhichOneof("message") != "welcome":
                log.warning("no_welcome", worker=self.target.name)
                return
            self._hear(first.welcome.heartbeat if first.welcome.HasField("heartbeat") else None)
            self._check()  # a stuck engine's worker greets as any other
            tasks = [asyncio.create_task(_write_all(call, outbox))]
            self._greet(first.welcome, outbox)
            reading = asyncio.create_task(self._read_all(call, first.welcome.worker.instance_id))
            watching = asyncio.create_task(self._watch())
            tasks += [reading, watching]
            done, _ = await asyncio.wait({reading, watching}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            call.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_all(self, call: Call, instance_id: str) -> None:
        while (message := await _read(call)) is not None:
            self._hear(message.heartbeat if message.WhichOneof("message") == "heartbeat" else self._beat)
            self._take(instance_id, message)

    def _hear(self, beat: inf.Heartbeat | None) -> None:
        self._hearing.heard(time.monotonic())
        self._beat = beat

    async def _watch(self) -> None:
        """Raises WorkerMuteError where a worker that promised heartbeats is mute or stuck."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            self._check()

    def _check(self) -> None:
        silent_seconds, beat = self._hearing.silent_seconds(time.monotonic()), self._beat
        if beat is None or beat.interval_seconds == 0:  # it sends none: only the connection can tell
            return
        if silent_seconds > max(self._patience.silent_seconds, 3 * beat.interval_seconds):
            raise WorkerMuteError(Loss.SILENT, silent_seconds)
        if self._patience.is_stuck(beat):
            raise WorkerMuteError(Loss.STUCK, beat.busy_seconds)

    def _take(self, instance_id: str, message: inf.AttachResponse) -> None:
        if message.WhichOneof("message") == "admission_changed":
            self.admitting = message.admission_changed.admitting
            return
        try:
            self._events.received(instance_id, message)
        except (
            Exception
        ):  # a defect in the handling of one session must not cost the worker's other sessions their stream
            log.exception("message_failed", worker=self.target.name, kind=message.WhichOneof("message"))

    def _greet(self, welcome: inf.Welcome, outbox: asyncio.Queue[inf.AttachRequest]) -> None:
        before = self.instance_id
        if before is not None and before != welcome.worker.instance_id:
            self._events.lost(
                before, certain=True, reason=self._cause(Loss.RESTARTED)
            )  # a restarted process: its sessions are gone
        self.welcome, self.admitting, self._lost_reported = welcome, welcome.admitting, False
        self._outbox = outbox
        log.info("attached", worker=self.target.name, instance_id=welcome.worker.instance_id, model=welcome.model)
        self._events.connected(welcome.worker.instance_id, welcome.sessions)


async def _read(call: Call) -> inf.AttachResponse | None:
    """The next message; None at the end of the stream."""
    message = await call.read()
    return message if isinstance(message, inf.AttachResponse) else None


async def _write_all(call: Call, outbox: asyncio.Queue[inf.AttachRequest]) -> None:
    try:
        while True:
            await call.write(await outbox.get())
    except (grpc.RpcError, asyncio.InvalidStateError):
        call.cancel()  # the reader sees the end
