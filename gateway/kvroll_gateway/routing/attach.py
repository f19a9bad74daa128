"""The one Attach stream to one worker: connects, names itself, reads always, reconnects, and says when the worker counts as lost."""

import asyncio
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import grpc
import structlog

from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import inference_pb2_grpc as inf_grpc
from kvroll_gateway.routing.workers import WorkerTarget

if TYPE_CHECKING:
    Call = grpc.aio.StreamStreamCall[inf.AttachRequest, inf.AttachResponse]
else:
    Call = object

PROTOCOL_VERSION = 1
_WELCOME_SECONDS = 5.0
_FIRST_BACKOFF_SECONDS = 0.1
_MAX_BACKOFF_SECONDS = 1.0
_CHANNEL_OPTIONS = [
    (
        "grpc.use_local_subchannel_pool",
        1,
    ),  # a channel of its own, so that a retry connects anew instead of waiting out a shared back-off
    ("grpc.max_receive_message_length", 64 << 20),  # TransferOwnership carries whole states
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.enable_retries", 0),
    # A node that vanishes says nothing: pings find out. The worker allows one each 5 s.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
]

log = structlog.get_logger(__name__)


class Events(Protocol):
    """Who hears what the stream brings."""

    def received(self, instance_id: str, message: inf.AttachResponse) -> None: ...
    def connected(self, instance_id: str, held: Iterable[inf.HeldSession]) -> None: ...
    def lost(self, instance_id: str, *, certain: bool) -> None: ...


@dataclass(frozen=True)
class Patience:
    """Seconds without a stream after which a worker counts as lost: its port refuses (`refused`), or nothing is heard (`silent`)."""

    refused_seconds: float = 3.0
    silent_seconds: float = 10.0


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
        while True:
            refused = False
            try:
                async with grpc.aio.insecure_channel(self.target.address, options=_CHANNEL_OPTIONS) as channel:
                    await self._converse(inf_grpc.InferenceServiceStub(channel))
            except (grpc.RpcError, TimeoutError, asyncio.InvalidStateError) as error:
                details = str(error.details()) if isinstance(error, grpc.aio.AioRpcError) else "no Welcome in time"
                refused = "refused" in details
                log.debug("attach_broken", worker=self.target.name, details=details)
            if self._outbox is not None:  # there was a stream
                self._outbox = None
                backoff_seconds, down_since_seconds = _FIRST_BACKOFF_SECONDS, time.monotonic()
            self._judge(time.monotonic() - down_since_seconds, refused)
            await asyncio.sleep(backoff_seconds * random.uniform(0.7, 1.0))
            backoff_seconds = min(backoff_seconds * 2, _MAX_BACKOFF_SECONDS)

    def _judge(self, down_seconds: float, refused: bool) -> None:
        limit = self._patience.refused_seconds if refused else self._patience.silent_seconds
        if self.instance_id is not None and not self._lost_reported and down_seconds >= limit:
            self._lost_reported = True
            self._events.lost(self.instance_id, certain=False)

    async def _converse(self, stub: "inf_grpc.InferenceServiceAsyncStub") -> None:
        """One life of the stream; returns or raises when it is over."""
        outbox: asyncio.Queue[inf.AttachRequest] = asyncio.Queue()
        hello = inf.Hello(gateway_id=self._gateway_id, protocol_version=PROTOCOL_VERSION)
        call = stub.Attach()
        writer: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(_WELCOME_SECONDS):
                await call.write(inf.AttachRequest(hello=hello))
                first = await _read(call)
            if first is None or first.WhichOneof("message") != "welcome":
                log.warning("no_welcome", worker=self.target.name)
                return
            writer = asyncio.create_task(_write_all(call, outbox))
            self._greet(first.welcome, outbox)
            while (message := await _read(call)) is not None:
                self._take(first.welcome.worker.instance_id, message)
        finally:
            if writer is not None:
                writer.cancel()
            call.cancel()

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
            self._events.lost(before, certain=True)  # a restarted process: its sessions are gone
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
