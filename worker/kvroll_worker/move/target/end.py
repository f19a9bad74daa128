"""The target's end of moves as one pure machine: a message in, an answer or what must be done before it can be given out.

What must be done is done on the engine (`move.target.landing`), by a coroutine in a worker and step by step in a test; its outcome comes
back through the method that the step names.
"""

from dataclasses import dataclass, replace

from kvroll_core.budget import pages_for
from kvroll_core.compat import Descriptor, MovePolicy, Verdict, verdict
from kvroll_core.words import VerdictKind
from kvroll_worker.move.messages import Offer, OfferAnswer, Prepare, PrepareAnswer
from kvroll_worker.move.target.reservations import (
    ArrivedSession,
    BadMoveError,
    MoveGoneError,
    PreparedCopy,
    Reservation,
    TargetPhase,
)
from kvroll_worker.own.effects import Effect
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.own.record import SessionRecord, record_of
from kvroll_worker.request import SessionState


@dataclass(frozen=True)
class TakeIn:
    """An offer that may be taken: carry `effects` out, find room in the engine, then `taken_in` or `no_room`."""

    reservation: Reservation
    offer: Offer
    verdict: Verdict
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Complete:
    """A prepare that may be fulfilled: make the copy `state` in the engine, verified, then `completed`.

    For a Replay, `new_token_ids` are those that no Push brought.
    """

    reservation: Reservation
    prepare: Prepare
    state: SessionState
    record: SessionRecord
    new_token_ids: tuple[int, ...]


class TargetEnd:
    """Offers and prepares of one worker. Idempotent by (migration, session): a repeat gets the answer of the first."""

    def __init__(self, ledger: Ledger, descriptor: Descriptor) -> None:
        self._ledger = ledger
        self._descriptor = descriptor

    # -- Offer

    def offered(self, offer: Offer, closed: str | None, now: float) -> OfferAnswer | TakeIn:
        """Decides by verdict, promises and what this worker owns; an open reservation of another attempt gives way.

        `closed` is why this worker takes no new session, None while it does.
        """
        repeat = self._repeated(offer.migration_id, offer.state.session_id)
        if repeat is not None:
            return repeat
        if closed is not None:
            return OfferAnswer.refused(closed)
        decided = self._verdict(offer)
        if decided.kind is VerdictKind.REFUSE:
            return OfferAnswer(decided)
        why_not = self._ledger.may_reserve(offer.state.session_id, offer.epoch)
        if why_not is not None:
            return OfferAnswer.refused(why_not)
        reservation, effects = self._ledger.reserve(
            offer.migration_id, offer.state.session_id, offer.epoch, decided.kind, now
        )
        return TakeIn(reservation, offer, decided, tuple(effects))

    def taken_in(self, step: TakeIn, arrival: ArrivedSession) -> OfferAnswer:
        """The engine has room; the pages that `arrival` holds already need not be sent."""
        reservation = step.reservation
        if not reservation.open:
            return OfferAnswer.refused("aborted meanwhile")
        reservation.arrival = arrival
        reservation.answer = OfferAnswer(
            step.verdict,
            reservation.generation,
            self._ledger.targets.lease_seconds,
            self._descriptor.kv_form,
            tuple(sorted(arrival.pages)),
        )
        return reservation.answer

    def no_room(self, step: TakeIn, why: str) -> tuple[OfferAnswer, list[Effect]]:
        """The engine cannot take it: the reservation is freed again."""
        effects = self._ledger.free_move(step.reservation.migration_id, step.reservation.session_id)
        return OfferAnswer.refused(f"no room: {why}"), effects

    def _repeated(self, migration_id: str, session_id: str) -> OfferAnswer | None:
        known = self._ledger.targets.find(migration_id, session_id)
        if known is not None and known.open:
            return known.answer or OfferAnswer.refused("the first offer of this migration is not answered yet")
        if known is not None or self._ledger.targets.buried(migration_id, session_id):
            return OfferAnswer.refused("this migration ended here; offer again with a new migration id")
        return None

    def _verdict(self, offer: Offer) -> Verdict:
        state = offer.state
        policy = MovePolicy(
            allowed=offer.allowed,
            kv_across_weights=offer.kv_across_weights,
            reproducible=state.sampling.reproducible,
            total_tokens=len(state.prompt_token_ids) + state.sampling.max_tokens,
        )
        return verdict(offer.descriptor, self._descriptor, policy)

    # -- Push

    def receiving(self, migration_id: str, session_id: str, generation: int, now: float) -> Reservation:
        """The reservation that data may land in, its lease renewed.

        Raises:
            MoveGoneError: there is none of that generation, its Offer is not answered yet, or it is prepared.
        """
        reservation = self._ledger.targets.receiving(migration_id, session_id, generation, now)
        if reservation.answer is None:
            raise MoveGoneError(f"move {migration_id}: its Offer is not answered yet")
        return reservation

    # -- Prepare, Abort

    def preparing(self, prepare: Prepare, now: float) -> PrepareAnswer | Complete:
        """Checks that the frozen session may become a copy here.

        Raises:
            MoveGoneError: no such reservation, or a higher epoch was promised meanwhile.
            BadMoveError: the pages cannot cover the tokens, or the token ids are other ones than were pushed.
        """
        session_id = prepare.state.session_id
        known = self._ledger.targets.find(prepare.migration_id, session_id)
        complete = known is not None and known.phase in (TargetPhase.PREPARED, TargetPhase.ACTIVE)
        if complete and known is not None and known.copy is not None and known.copy.digest == prepare.digest:
            return PrepareAnswer(prepare.digest)
        reservation = self.receiving(prepare.migration_id, session_id, prepare.generation, now)
        if not self._ledger.fence.admits(session_id, prepare.epoch):
            highest = self._ledger.fence.highest(session_id)
            raise MoveGoneError(f"epoch {prepare.epoch} is below the promised {highest}")
        record = record_of(
            prepare.state, reservation.kind.value, self._descriptor.weights_dtype, self._descriptor.kv_format
        )
        state = replace(
            prepare.state,
            precision_epochs=list(record.precision_epochs),
            kv_converted=prepare.state.kv_converted or reservation.kind is VerdictKind.CONVERT,
        )
        record.admitted = state
        new = _new_token_ids(reservation, state) if reservation.kind is VerdictKind.REPLAY else ()
        if reservation.kind is not VerdictKind.REPLAY:
            _check_cover(prepare)
        return Complete(reservation, prepare, state, record, new)

    def completed(self, step: Complete, bad_pages: list[int], now: float) -> PrepareAnswer:
        """The engine made the copy, or says which pages are not here.

        Raises:
            MoveGoneError: the reservation ended meanwhile.
        """
        if bad_pages:
            return PrepareAnswer(bad_pages=tuple(bad_pages))
        prepare = step.prepare
        copy = PreparedCopy(prepare.digest, prepare.epoch, step.record)
        self._ledger.targets.prepared(prepare.migration_id, prepare.state.session_id, prepare.generation, copy, now)
        return PrepareAnswer(prepare.digest)

    def aborted(self, migration_id: str, session_id: str) -> list[Effect]:
        """The source gave the move up: its reservation is freed, and a later Offer of it refused."""
        return self._ledger.free_move(migration_id, session_id)


def _new_token_ids(reservation: Reservation, state: SessionState) -> tuple[int, ...]:
    have = reservation.landed.state.output_token_ids
    if state.output_token_ids[: len(have)] != have:
        raise BadMoveError("the final token ids do not begin with those pushed before")
    return tuple(state.output_token_ids[len(have) :])


def _check_cover(prepare: Prepare) -> None:
    tokens, kv_tokens = prepare.state.num_tokens, prepare.num_kv_tokens
    if kv_tokens >= tokens or prepare.first_page + len(prepare.page_hashes) != pages_for(kv_tokens):
        found = f"{len(prepare.page_hashes)} pages from page {prepare.first_page} on"
        raise BadMoveError(f"{found} cannot cover {kv_tokens} of {tokens} tokens")
