"""All sessions of this gateway: carries worker messages to their state machines and the answers back, and keeps the timers."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable

import structlog

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import ownership_pb2 as own
from kvroll_core.epoch import Epoch
from kvroll_gateway.metrics import GatewayMetrics
from kvroll_gateway.sessions import messages
from kvroll_gateway.sessions.ownership import Ownership
from kvroll_gateway.sessions.phases import TERMINAL, Failure, Note, Output, OwnershipPhase
from kvroll_gateway.sessions.ports import InstanceLoad, Loss, Seeker, WorkersPort
from kvroll_gateway.sessions.session import GatewaySession
from kvroll_gateway.settings import GatewaySettings

_TICK_SECONDS = 0.1
_REPEAT_SECONDS = 1.0
_RETRY_PLACE_SECONDS = 0.5
_KEEP_ENDED_SECONDS = 600.0  # a source may still ask whom its session belongs to
_KEEP_ENDED_SESSIONS = 10_000

_OfSession = (
    inf.Submitted
    | inf.Rejected
    | inf.Cancelled
    | inf.SessionFailed
    | own.TransferOwnership
    | own.Activated
    | own.ActivateRefused
)

log = structlog.get_logger(__name__)


class SessionTable:
    """The registry of sessions; every method runs on the event loop's thread.

    Args:
        settings: bounds and deadlines.
        gateway_id: this process's name in epochs.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        gateway_id: str,
        metrics: GatewayMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._gateway_id = gateway_id
        self._metrics = metrics
        self._clock = clock
        self._workers: WorkersPort | None = None
        self._sessions: dict[str, GatewaySession] = {}
        self._ended: dict[str, GatewaySession] = {}  # in the order in which they ended
        self._waiting: dict[str, GatewaySession] = {}  # whoever the timer has something to do for, ended or not
        self._next_repeat_seconds = 0.0

    @property
    def workers(self) -> WorkersPort:
        if self._workers is None:
            raise RuntimeError("expected `bind` to have been called before the first session, found no workers")
        return self._workers

    @property
    def live(self) -> int:
        """Sessions whose client still waits."""
        return len(self._sessions)

    def bind(self, workers: WorkersPort) -> None:
        self._workers = workers

    def open(self, template: inf.Submit) -> GatewaySession:
        """Begins a session and asks a worker at once; `GatewaySession.admitted` tells how it went."""
        ownership = Ownership(template, self._gateway_id, self._settings.log_frames, self.workers.precisions)
        session_id = template.session_id
        session = GatewaySession(ownership, lambda reason: self._cancel(session_id, reason), self._clock())
        self._sessions[session_id] = session
        self._apply(session, [])
        return session

    def find(self, session_id: str) -> GatewaySession | None:
        """The session, in service or ended a while ago."""
        return self._sessions.get(session_id) or self._ended.get(session_id)

    # --- from the workers ----------------------------------------------------------------------------------------

    def received(self, instance_id: str, message: inf.AttachResponse) -> None:
        """One message of one worker's stream."""
        match message.WhichOneof("message"):
            case "frames":
                self._frames(instance_id, message.frames)
            case "submitted":
                self._tell(message.submitted, lambda owner: owner.submitted(instance_id, message.submitted))
            case "rejected":
                self._tell(message.rejected, lambda owner: owner.rejected(instance_id, message.rejected))
            case "cancelled":
                self._tell(message.cancelled, lambda owner: owner.cancelled(instance_id, message.cancelled))
            case "session_failed":
                self._tell(
                    message.session_failed, lambda owner: owner.session_failed(instance_id, message.session_failed)
                )
            case "transfer_ownership":
                self._transfer(instance_id, message.transfer_ownership)
            case "activated":
                self._tell(message.activated, lambda owner: owner.activated(instance_id, message.activated))
            case "activate_refused":
                self._tell(
                    message.activate_refused,
                    lambda owner: owner.activate_refused(instance_id, message.activate_refused),
                )

    def connected(self, instance_id: str, held: Iterable[inf.HeldSession]) -> None:
        """A stream is up: each session hears what that worker has of it; what nobody here knows is freed there."""
        by_id = {one.session_id: one for one in held}
        for session in self._concerned(by_id):
            self._apply(session, session.ownership.connected(instance_id, by_id.get(session.session_id)))
        for session_id in by_id.keys() - self._sessions.keys() - self._ended.keys():
            self._cancel_unknown(instance_id, session_id, messages.read_epoch(by_id[session_id].epoch))

    def lost(self, instance_id: str, *, certain: bool, reason: Loss) -> None:
        """The worker instance is gone, or unreachable for longer than the limit."""
        log.warning("worker_lost", instance_id=instance_id, certain=certain, reason=reason)
        died = reason is not Loss.REMOVED
        for session in self._concerned(()):
            self._apply(session, session.ownership.lost(instance_id, certain=certain, died=died))

    def end_all(self, failure: Failure) -> int:
        """Ends every session whose client still waits; returns how many there were."""
        ended = list(self._sessions.values())
        for session in ended:
            self._apply(session, session.ownership.give_up(failure))
        return len(ended)

    async def run(self) -> None:
        """Repeats what is unanswered, places what waits for a worker, forgets what is over; until cancelled."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        """One beat of the timer. Its cost is that of the sessions that wait for something, however many others run or have ended."""
        now_seconds = self._clock()
        repeat = now_seconds >= self._next_repeat_seconds
        if repeat:
            self._next_repeat_seconds = now_seconds + _REPEAT_SECONDS
            self._forget(now_seconds)
        for session in list(self._waiting.values()):
            if repeat or session.ownership.phase is OwnershipPhase.SEEKING:
                self._apply(session, session.ownership.repeat() if repeat else [])
            if session.ownership.phase is OwnershipPhase.TRANSFERRING:
                self._watch_target(session, now_seconds)

    # --- inside --------------------------------------------------------------------------------------------------

    def _concerned(self, held: Iterable[str]) -> list[GatewaySession]:
        """Whoever a worker's coming or going can concern: sessions that run, that the timer waits for, and those that the worker holds."""
        named = {session_id: self._ended[session_id] for session_id in held if session_id in self._ended}
        return list({**self._sessions, **self._waiting, **named}.values())

    def _frames(self, instance_id: str, batch: inf.FrameBatch) -> None:
        by_session: dict[str, list[pb.Frame]] = {}
        for frame in batch.frames:
            by_session.setdefault(frame.session_id, []).append(frame)
        for session_id, frames in by_session.items():
            session = self.find(session_id)
            if session is None:
                self._cancel_unknown(instance_id, session_id, messages.read_epoch(frames[0].epoch))
                continue
            before = session.ownership.log.next_index
            outputs = session.ownership.frames(instance_id, frames)
            self._observe_tokens(session, before)
            self._apply(session, outputs)

    def _observe_tokens(self, session: GatewaySession, before: int) -> None:
        count = session.ownership.log.next_index - before
        if count == 0:
            return
        now_seconds, model = self._clock(), session.ownership.template.model
        self._metrics.tokens.labels(model).inc(count)
        if session.last_token_seconds is None:
            self._metrics.time_to_first_token.labels(model).observe(now_seconds - session.created_seconds)
        else:
            self._metrics.inter_token.labels(model).observe((now_seconds - session.last_token_seconds) / count)
        session.last_token_seconds = now_seconds
        self._check_record(session)

    def _check_record(self, session: GatewaySession) -> None:
        frames = session.ownership.log
        if frames.finished and frames.last is not None and frames.last.HasField("record"):
            found = (frames.last.record.completion_tokens, frames.last.record.output_digest)
            expected = (frames.next_index, frames.digest())
            if found != expected:
                self._metrics.record_mismatches.inc()
                log.error("record_mismatch", session_id=session.session_id, worker=found, delivered=expected)

    def _tell(self, body: _OfSession, hear: Callable[[Ownership], list[Output]]) -> bool:
        """Lets the session's state machine hear it; False where there is no such session."""
        session = self.find(body.session_id)
        if session is not None:
            self._apply(session, hear(session.ownership))
        return session is not None

    def _transfer(self, instance_id: str, request: own.TransferOwnership) -> None:
        if not self._tell(request, lambda owner: owner.transfer(instance_id, request)):
            log.warning("transfer_of_unknown_session", instance_id=instance_id, session_id=request.session_id)
            self.workers.send(messages.answer(instance_id, request, own.TRANSFER_RESULT_UNKNOWN))

    def _cancel_unknown(self, instance_id: str, session_id: str, epoch: Epoch) -> None:
        if epoch.gateway_id == self._gateway_id:
            self.workers.send(messages.cancel(instance_id, session_id, epoch, "the session is over"))

    def _cancel(self, session_id: str, reason: str) -> None:
        if session := self._sessions.get(session_id):
            self._apply(session, session.ownership.cancel(reason))

    def _apply(self, session: GatewaySession, outputs: list[Output]) -> None:
        """Sends and counts the outputs, then does what the new phase asks for."""
        self._emit(session, outputs)
        ownership = session.ownership
        if ownership.phase is OwnershipPhase.SEEKING:
            self._seek(session)
        else:
            session.seeking_since_seconds = None if ownership.attempt is None else session.seeking_since_seconds
        if ownership.log.overflowed and ownership.phase not in TERMINAL:
            slow = Failure("client_too_slow", f"more than {self._settings.log_frames} tokens were not read in time")
            self._emit(session, ownership.give_up(slow))
        if ownership.phase in TERMINAL:
            self._end(session)
        if ownership.settled or (ownership.phase is OwnershipPhase.RUNNING and ownership.copies.settled):
            self._waiting.pop(session.session_id, None)
        else:
            self._waiting[session.session_id] = session
        session.wake()

    def _emit(self, session: GatewaySession, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Note):
                self._metrics.note(output)
                if output.what in ("moved", "replayed", "resumed"):
                    log.info("session_" + output.what, session_id=session.session_id, verdict=output.label)
            else:
                self.workers.send(output)

    def _watch_target(self, session: GatewaySession, now_seconds: float) -> None:
        """A target that went before its move was asked for never answers; one that is only not discovered yet gets its time."""
        move = session.ownership.move
        if move is None or self.workers.reachable(move.target):
            session.target_missed_since_seconds = None
        elif session.target_missed_since_seconds is None:
            session.target_missed_since_seconds = now_seconds
        elif now_seconds - session.target_missed_since_seconds >= self._settings.worker_silent_seconds:
            session.target_missed_since_seconds = None
            self._apply(session, session.ownership.lost(move.target, certain=False, died=False))

    def _seek(self, session: GatewaySession) -> None:
        ownership, now_seconds = session.ownership, self._clock()
        if session.seeking_since_seconds is None:
            session.seeking_since_seconds = session.next_try_seconds = now_seconds
        if ownership.num_deaths > self._settings.replay_limit:
            self._emit(session, ownership.give_up(self._poisoned(ownership)))
            return
        if now_seconds < session.next_try_seconds:
            return
        waited_seconds = now_seconds - session.seeking_since_seconds
        urgent = waited_seconds >= self._settings.quarantine_seconds
        seeker = Seeker(ownership.template.model, ownership.excluded, ownership.suspect, urgent)
        placed = self.workers.place(seeker, self._load())
        if isinstance(placed, str):
            self._emit(session, ownership.placed(placed))
        elif placed.quarantined:
            self._quarantine(session, placed.message)
        elif ownership.state is None:
            code = "no_worker_available" if placed.known_model else "model_not_found"
            self._emit(session, ownership.give_up(Failure(code, placed.message)))
        elif waited_seconds > self._settings.replay_deadline_seconds:
            waited = f"no worker could go on with the session within {self._settings.replay_deadline_seconds:g} s"
            self._emit(session, ownership.give_up(Failure("session_lost", f"{waited}: {placed.message}")))
        else:
            ownership.excluded.clear()  # those that had no room may have some later
            session.next_try_seconds = now_seconds + _RETRY_PLACE_SECONDS

    def _quarantine(self, session: GatewaySession, why: str) -> None:
        if not session.quarantined:
            session.quarantined = True
            self._metrics.quarantined.inc()
            log.warning("session_quarantined", session_id=session.session_id, why=why)
        session.next_try_seconds = self._clock() + _RETRY_PLACE_SECONDS

    def _poisoned(self, ownership: Ownership) -> Failure:
        ended = f"{ownership.num_deaths} workers ended while they held the session"
        limit = f"it is replayed at most {self._settings.replay_limit} times, for they may have ended because of it"
        return Failure("session_poisoned", f"{ended}; {limit}")

    def _load(self) -> InstanceLoad:
        sessions, suspects = Counter[str](), Counter[str]()
        for one in self._sessions.values():
            busy = one.ownership.busy_instances
            sessions.update(busy)
            if one.ownership.suspect:
                suspects.update(busy)
        return InstanceLoad(sessions, suspects)

    def _end(self, session: GatewaySession) -> None:
        if self._sessions.pop(session.session_id, None) is None:
            return
        session.ended_seconds = self._clock()
        self._ended[session.session_id] = session
        phase, failure = session.ownership.phase, session.ownership.failure
        admitted = session.ownership.state is not None
        outcome = "lost" if phase is OwnershipPhase.FAILED and admitted else str(phase)
        if failure is not None and failure.code == "client_too_slow":
            outcome = "cut_off"
        if failure is not None and failure.code == "session_poisoned":
            outcome = "poisoned"
        model = session.ownership.template.model if phase is not OwnershipPhase.FAILED else ""
        self._metrics.ended(model, outcome, admitted=admitted)
        if failure is not None:
            log.warning("session_failed", session_id=session.session_id, code=failure.code, message=failure.message)

    def _forget(self, now_seconds: float) -> None:
        self._metrics.sessions.set(len(self._sessions))
        while self._ended:
            session_id, session = next(iter(self._ended.items()))
            old = now_seconds - (session.ended_seconds or 0.0) > _KEEP_ENDED_SECONDS
            if not old and len(self._ended) <= _KEEP_ENDED_SESSIONS:
                return
            del self._ended[session_id]
            self._waiting.pop(session_id, None)
