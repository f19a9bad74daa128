"""What the engine's steps bring: tokens and failures, entered in the ledger, each for its session alone."""

import traceback
from collections.abc import Callable, Sequence

import structlog

from kvroll_worker.own import effects as fx
from kvroll_worker.own.frames import FrameOrderError
from kvroll_worker.own.held import Held
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.request import FailureCode, SessionFailure, TokenEvent
from kvroll_worker.serve.instance.asides import Asides
from kvroll_worker.serve.instance.gateways import Gateways
from kvroll_worker.serve.instance.loop import Event
from kvroll_worker.serve.instance.measured import Measured
from kvroll_worker.serve.metrics import Metrics

_log = structlog.get_logger("kvroll.worker.events")


class SessionEvents:
    """Between the engine's events and the ledger; decides nothing but whose fault an error is."""

    def __init__(
        self,
        ledger: Ledger,
        gateways: Gateways,
        asides: Asides,
        metrics: Metrics,
        measured: Measured,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._gateways = gateways
        self._asides = asides
        self._metrics = metrics
        self._measured = measured
        self._clock = clock

    def taken(self, events: Sequence[Event]) -> list[fx.Effect]:
        """What follows from the events of one step."""
        out: list[fx.Effect] = []
        now = self._clock()
        for event in events:
            if self._asides.take(event):
                continue
            try:
                out += self.failed(event) if isinstance(event, SessionFailure) else self._token(event, now)
            except Exception as error:  # the step's other events are other sessions'
                out += self.blame(event.session_id, error)
        return out

    def blame(self, session_id: str, error: Exception) -> list[fx.Effect]:
        """Ends the session that something was done for when it failed; the log has the traceback."""
        text = f"{type(error).__name__}: {error}"
        _log.error(
            "a session failed", session=session_id, error=text, traceback="".join(traceback.format_exception(error))
        )
        return self.failed(SessionFailure(session_id, FailureCode.SESSION_ERROR, text))

    def dropped(self, held: Held, message: str) -> list[fx.Effect]:
        """Lets a session go, as the policy wants: its gateway gets a typed error."""
        self._gateways.tell_failed(held, "dropped", message)
        return self._ledger.failed(held)

    def _token(self, event: TokenEvent, now: float) -> list[fx.Effect]:
        held = self._ledger.sessions.get(event.session_id)
        if held is None:
            return []
        self._time_token(held.record, event, now)
        try:
            return self._ledger.token(event)
        except FrameOrderError as error:
            return self.failed(SessionFailure(event.session_id, "out_of_order", str(error)))

    def _time_token(self, record: SessionRecord, event: TokenEvent, now: float) -> None:
        metrics = self._metrics
        if record.last_token_at is not None:
            metrics.inter_token_seconds.observe(now - record.last_token_at)
        elif record.submitted_at is not None:
            record.scheduled_at, record.first_token_at = event.scheduled_at, now
            metrics.began(record, now)
            self._measured.prefilled(record.num_prompt_tokens, event.cached_tokens, record.submitted_at, now)
        record.last_token_at, record.num_outputs = now, event.index + 1
        if event.finish_reason is not None:
            metrics.finished(record, event.finish_reason, now)

    def failed(self, failure: SessionFailure) -> list[fx.Effect]:
        """Ends a session, or the reservation of one that moves here; its gateway gets the code."""
        held = self._ledger.sessions.get(failure.session_id)
        if held is not None:
            self._gateways.tell_failed(held, failure.code, failure.message)
            return self._ledger.failed(held)
        reservation = self._ledger.targets.of_session(failure.session_id)
        if reservation is None:
            return []
        return self._ledger.free_move(reservation.migration_id, reservation.session_id)
