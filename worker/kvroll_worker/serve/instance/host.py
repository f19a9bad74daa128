"""One worker instance: engine thread, ledger, gateways' streams, and the one place where the ledger's effects are carried out."""

import asyncio
import contextlib
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import structlog

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll_core.budget import page_window
from kvroll_core.compat import Descriptor
from kvroll_worker.move.peers import Peers
from kvroll_worker.move.source.attempt import SourceMove
from kvroll_worker.move.source.transfer import MoveReport
from kvroll_worker.own import effects as fx
from kvroll_worker.own.frames import FrameOrderError
from kvroll_worker.own.held import Held
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.port import EnginePort
from kvroll_worker.request import FailureCode, SessionFailure, TokenEvent
from kvroll_worker.serve.instance import outgoing
from kvroll_worker.serve.instance.asides import Asides
from kvroll_worker.serve.instance.loop import EngineLoop, Event
from kvroll_worker.serve.instance.measured import Measured
from kvroll_worker.serve.instance.streams import GatewayStream
from kvroll_worker.serve.metrics import Metrics
from kvroll_worker.wire.codec import epoch_to_wire

T = TypeVar("T")
_log = structlog.get_logger("kvroll.worker.host")
_TICK_SECONDS = 0.2
HEARTBEAT_SECONDS = 1.0


class WorkerHost:
    """Everything here runs on the event loop; only `loop` touches the engine.

    `on_crash` is called when the engine's thread dies of an exception that no session is to blame for: the process must end.
    """

    def __init__(
        self,
        engine: EnginePort,
        ref: pb.WorkerRef,
        model: str,
        ledger: Ledger,
        metrics: Metrics,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self.ref = ref
        self.model = model
        self.ledger = ledger
        self.metrics = metrics
        self.peers = Peers()
        self.descriptor: Descriptor = engine.descriptor
        self.budget, self.shape, self.asked = engine.budget, engine.shape, engine.asked
        self.window = page_window(self.shape, self.asked.max_batch_tokens, self.asked.precision.kv_cache)
        self.measured = Measured()
        self.tokenizer = engine.tokenizer
        self.loop = EngineLoop(engine, self._on_events, on_crash)
        self.asides = Asides(self.loop)
        self.stats = engine.stats()
        metrics.engine.stats = self.stats
        metrics.wall.runs(self.descriptor)
        self.admitting = False
        self.sealed = False
        self.ticked_at = time.monotonic()
        self._streams: dict[str, GatewayStream] = {}
        self._move_ends: dict[SourceMove, asyncio.Event] = {}
        self._gone_listeners: list[Callable[[str, str], None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Starts the engine's thread and the ticks of the leases."""
        self.loop.start()
        self.spawn(self._tick_forever())
        self.spawn(self._beat_forever())

    def close_streams(self) -> None:
        """Ends every Attach stream after what is queued on it."""
        for stream in self._streams.values():
            stream.close()

    async def stop(self) -> None:
        """Ends tasks, channels and the engine's thread."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.peers.close()
        await self.loop.stop()

    def now(self) -> float:
        return time.monotonic()

    def step_seconds(self) -> float:
        """Smoothed seconds of one engine step, 0 before the first."""
        return self.loop.step_seconds

    def move_bytes_per_second(self) -> float:
        """Bytes a second that a move of this worker brought to its target, 0 before the first."""
        return self.measured.move_bytes_per_second

    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens that this worker computes a second, 0 before the first."""
        return self.measured.prefill_tokens_per_second

    def room_tokens(self) -> int:
        """Tokens of the longest session that can run here, prompt and outputs together."""
        return self.window.most_tokens(self.stats.pages_total, self.descriptor.max_model_len)

    async def call(self, act: Callable[[EnginePort], T]) -> T:
        """Runs `act` on the engine between two steps."""
        return await self.loop.call(act)

    def spawn(self, work: Awaitable[None]) -> None:
        """Runs a coroutine that nobody waits for; its failure is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def set_admission(self, admitting: bool) -> None:
        """Opens or closes admission and tells every gateway."""
        if self.admitting != admitting:
            self.admitting = admitting
            for stream in self._streams.values():
                stream.send(ipb.AttachResponse(admission_changed=ipb.AdmissionChanged(admitting=admitting)))

    # -- gateways

    def attach(self, stream: GatewayStream) -> None:
        """A gateway's stream is up; an older one of the same gateway ends."""
        older = self._streams.get(stream.gateway_id)
        if older is not None:
            older.close()
        self._streams[stream.gateway_id] = stream
        self.ledger.attached(stream.gateway_id)

    def detach(self, stream: GatewayStream) -> None:
        """The stream ended; does nothing if a newer one took its place."""
        stream.closed = True
        if self._streams.get(stream.gateway_id) is stream:
            del self._streams[stream.gateway_id]
            self.metrics.gateway_streams_ended.inc()
            self.ledger.detached(stream.gateway_id, self.now())

    def send(self, gateway_id: str, message: ipb.AttachResponse) -> None:
        """Sends if the gateway's stream is up; what matters is sent again after it comes back."""
        stream = self._streams.get(gateway_id)
        if stream is not None:
            stream.send(message)

    def heartbeat(self) -> ipb.Heartbeat:
        """How the engine's thread stands now, for gateways to judge."""
        return ipb.Heartbeat(
            interval_seconds=HEARTBEAT_SECONDS,
            busy_seconds=self.loop.busy_for_seconds,
            longest_step_seconds=self.loop.longest_step_seconds,
        )

    # -- moves and their listeners

    def on_gone(self, listener: Callable[[str, str], None]) -> None:
        """Calls `listener(session_id, way)` for every session that leaves the books."""
        self._gone_listeners.append(listener)

    async def ended(self, move: SourceMove) -> None:
        """Returns when the move has ended."""
        if not move.ended:
            await self._move_ends.setdefault(move, asyncio.Event()).wait()

    # -- effects

    def run(self, effects: Iterable[fx.Effect]) -> None:
        """Carries effects out in order; frames of one gateway that follow each other share one message."""
        batches: dict[str, list[pb.Frame]] = {}
        for effect in effects:
            if isinstance(effect, fx.SendFrames):
                batches.setdefault(effect.gateway_id, []).extend(outgoing.stamped(effect.frames, effect.epoch))
            else:
                self._flush(batches)
                self._act(effect)
        self._flush(batches)

    def _flush(self, batches: dict[str, list[pb.Frame]]) -> None:
        for gateway_id, frames in batches.items():
            self.send(gateway_id, ipb.AttachResponse(frames=ipb.FrameBatch(frames=frames)))
        batches.clear()

    def _act(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Free(session_id):
                self.loop.post(lambda engine: engine.cancel(session_id))
            case fx.Freeze(session_id):
                self.loop.post(lambda engine: engine.freeze(session_id), fail=_ignore)
            case fx.Thaw(session_id):
                self.loop.post(lambda engine: engine.thaw(session_id), fail=_ignore)
            case fx.Release(session_id):
                self.loop.post(
                    lambda engine: engine.release(session_id),
                    fail=lambda error: self._release_failed(session_id, error),
                )
            case fx.AbortPeer(move):
                self.spawn(self.peers.abort(move.target, move.migration_id, move.session_id, move.reason))
            case fx.MoveEnded(move):
                end = self._move_ends.pop(move, None)
                if end is not None:
                    end.set()
            case fx.Gone(session_id, way):
                self.metrics.left(way)
                for listener in self._gone_listeners:
                    listener(session_id, way)
            case fx.SendFrames():
                raise AssertionError("frames are batched by run()")
            case _:
                self._tell(effect)

    def _tell(self, effect: outgoing.Word) -> None:
        self.send(effect.gateway_id, outgoing.message_of(effect))

    # -- the engine speaks

    def _on_events(self, events: Sequence[Event]) -> None:
        out: list[fx.Effect] = []
        now = self.now()
        for event in events:
            if self.asides.take(event):
                continue
            try:
                out += self._session_failed(event) if isinstance(event, SessionFailure) else self._token(event, now)
            except Exception as error:  # the step's other events are other sessions'
                out += self.blame(event.session_id, error)
        self.run(out)

    def blame(self, session_id: str, error: Exception) -> list[fx.Effect]:
        """Ends the session that something was done for when it failed; the log has the traceback."""
        text = f"{type(error).__name__}: {error}"
        _log.error(
            "a session failed", session=session_id, error=text, traceback="".join(traceback.format_exception(error))
        )
        return self._session_failed(SessionFailure(session_id, FailureCode.SESSION_ERROR, text))

    def _token(self, event: TokenEvent, now: float) -> list[fx.Effect]:
        held = self.ledger.sessions.get(event.session_id)
        if held is None:
            return []
        record: SessionRecord = held.record
        frame = outgoing.frame_of(event, record)
        self._time_token(record, event, now)
        try:
            return self.ledger.token(event.session_id, event.index, frame, last=event.finish_reason is not None)
        except FrameOrderError as error:
            return self._session_failed(SessionFailure(event.session_id, "out_of_order", str(error)))

    def _time_token(self, record: SessionRecord, event: TokenEvent, now: float) -> None:
        if record.last_token_at is not None:
            self.metrics.inter_token_seconds.observe(now - record.last_token_at)
        elif record.submitted_at is not None:
            record.scheduled_at, record.first_token_at = event.scheduled_at, now
            self.metrics.began(record, now)
            self.measured.prefilled(record.num_prompt_tokens, event.cached_tokens, record.submitted_at, now)
        record.last_token_at, record.num_outputs = now, event.index + 1
        if event.finish_reason is not None:
            self.metrics.finished(record, event.finish_reason, now)

    def _session_failed(self, failure: SessionFailure) -> list[fx.Effect]:
        held = self.ledger.sessions.get(failure.session_id)
        if held is not None:
            self.tell_failed(held, failure.code, failure.message)
            return self.ledger.failed(held)
        reservation = self.ledger.targets.of_session(failure.session_id)
        return (
            self.ledger.free_move(reservation.migration_id, reservation.session_id) if reservation is not None else []
        )

    def tell_failed(self, held: Held, code: str, message: str) -> None:
        """Tells the session's gateway that it ended by an error."""
        failed = ipb.SessionFailed(
            session_id=held.session_id, epoch=epoch_to_wire(held.epoch), code=code, message=message
        )
        self.send(held.gateway_id, ipb.AttachResponse(session_failed=failed))

    def drop(self, held: Held, message: str) -> None:
        """Lets a session go, as the policy wants: its gateway gets a typed error."""
        self.tell_failed(held, "dropped", message)
        self.run(self.ledger.failed(held))

    def count_move(self, report: MoveReport) -> None:
        """A move that the gateway committed."""
        self.measured.moved(len(report.page_hashes) * report.page_bytes, report.seconds)
        self.metrics.sessions_moved.labels(report.kind.value).inc()
        self.metrics.moved_bytes.labels("out").inc(report.wire_bytes)
        self.metrics.downtime_seconds.observe(report.downtime_seconds)

    def count_failed_move(self) -> None:
        self.metrics.moves_failed.inc()

    def count_arrived(self, num_bytes: int, num_bad_pages: int) -> None:
        """A Push round of a session that moves here."""
        self.metrics.moved_bytes.labels("in").inc(num_bytes)
        self.metrics.checksum_failures.inc(num_bad_pages)

    def _release_failed(self, session_id: str, error: Exception) -> None:
        self.run(self._session_failed(SessionFailure(session_id, "release_failed", f"{type(error).__name__}: {error}")))

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.ticked_at = self.now()
            self.run(self.ledger.tick(self.ticked_at))
            self.loop.post(lambda engine: engine.stats(), self._take_stats)

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            beat = ipb.AttachResponse(heartbeat=self.heartbeat())
            for stream in self._streams.values():
                stream.beat(beat)

    def _take_stats(self, stats: Any) -> None:
        self.stats = self.metrics.engine.stats = stats
        self.metrics.wall.take(stats, self.loop.busy_seconds, self.loop.busy_cpu_seconds, self.now())

    def _reap(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        with contextlib.suppress(asyncio.CancelledError):
            error = task.exception()
            if error is not None:
                _log.error("a background task failed", error=f"{type(error).__name__}: {error}")


def _ignore(_: Exception) -> None:
    """The session ended before the command came: that is no error."""
