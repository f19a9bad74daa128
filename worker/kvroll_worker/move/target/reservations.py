"""The target's end of moves: RESERVED -> RECEIVING -> PREPARED -> ACTIVE or FREED, under a lease (docs/design.md §7 rules 4, 6 and 10)."""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum

from kvroll_core.epoch import Epoch
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.words import VerdictKind
from kvroll_worker.move.messages import OfferAnswer
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.request import SessionState


class TargetPhase(StrEnum):
    RESERVED = "reserved"
    RECEIVING = "receiving"
    PREPARED = "prepared"
    ACTIVE = "active"
    FREED = "freed"


class MoveGoneError(Exception):
    """No such reservation: never offered, aborted, run out, or of an older generation. The source starts again with a new migration id."""


class BadMoveError(Exception):
    """A message that no correct source sends: the move is aborted."""


OPEN = (TargetPhase.RESERVED, TargetPhase.RECEIVING, TargetPhase.PREPARED)


@dataclass(eq=False)
class ArrivedSession:
    """What has landed of one session. `pages` is the hash of every page that is here and verified, by page index; `adopted` are those
    among them that are shared with sessions of this worker.
    """

    state: SessionState  # as offered; for Replay its output ids grow with every Push
    pages: dict[int, bytes] = field(default_factory=dict)
    adopted: set[int] = field(default_factory=set)

    @property
    def max_pages(self) -> int:
        """No session may ask for more pages than its longest possible context needs."""
        most = max(len(self.state.prompt_token_ids) + self.state.sampling.max_tokens, self.state.num_tokens)
        return -(-most // PAGE_TOKENS)


@dataclass(frozen=True)
class PreparedCopy:
    """What Prepare verified: `epoch` is the one at which the source owned the session as it froze."""

    digest: bytes
    epoch: Epoch
    record: SessionRecord


@dataclass(eq=False)
class Reservation:
    """One offered session. `answer` is what Offer was answered, `copy` what Prepare verified: a repeat gets the same."""

    migration_id: str
    session_id: str
    epoch: Epoch  # at which the source owns the session
    kind: VerdictKind
    generation: int
    lease_until: float
    phase: TargetPhase = TargetPhase.RESERVED
    answer: OfferAnswer | None = None
    arrival: ArrivedSession | None = None
    copy: PreparedCopy | None = None
    active_epoch: Epoch | None = None

    @property
    def open(self) -> bool:
        return self.phase in OPEN

    @property
    def landed(self) -> ArrivedSession:
        """What has arrived; asked again on the engine's thread, so that nothing lands after the reservation was freed there.

        Raises:
            MoveGoneError: it ended meanwhile, or its Offer is not answered yet.
        """
        if not self.open or self.arrival is None:
            raise MoveGoneError(f"move {self.migration_id} ended meanwhile")
        return self.arrival


class TargetTable:
    """All moves towards this worker by (migration, session); ended ones are kept, bounded, so that a repeat does nothing new."""

    def __init__(self, lease_seconds: float = 30.0, max_ended: int = 8192) -> None:
        self.lease_seconds = lease_seconds
        self._max_ended = max_ended
        self._open: dict[tuple[str, str], Reservation] = {}
        self._ended: OrderedDict[tuple[str, str], Reservation | None] = OrderedDict()
        self._generation = 0

    def __len__(self) -> int:
        return len(self._open)

    def open_reservations(self) -> list[Reservation]:
        """Those that hold room now."""
        return list(self._open.values())

    def find(self, migration_id: str, session_id: str) -> Reservation | None:
        """The move, open or ended; None if it is unknown or only a tombstone."""
        key = (migration_id, session_id)
        return self._open.get(key) or self._ended.get(key)

    def of_session(self, session_id: str) -> Reservation | None:
        """The open reservation of that session, if any: there is at most one."""
        return next((r for r in self._open.values() if r.session_id == session_id), None)

    def buried(self, migration_id: str, session_id: str) -> bool:
        """Whether that move ended here without becoming active, or was aborted before it came."""
        key = (migration_id, session_id)
        if key not in self._ended:
            return False
        ended = self._ended[key]
        return ended is None or ended.phase is TargetPhase.FREED

    def reserve(self, migration_id: str, session_id: str, epoch: Epoch, kind: VerdictKind, now: float) -> Reservation:
        """Opens a reservation under a lease; its generation number is never used again."""
        self._generation += 1
        reservation = Reservation(migration_id, session_id, epoch, kind, self._generation, now + self.lease_seconds)
        self._open[migration_id, session_id] = reservation
        return reservation

    def receiving(self, migration_id: str, session_id: str, generation: int, now: float) -> Reservation:
        """Checks that data may still land there, and renews the lease.

        Raises:
            MoveGoneError: the reservation ended or is of another generation, or its content is already sealed by Prepare.
        """
        reservation = self._require(migration_id, session_id, generation)
        if reservation.phase is TargetPhase.PREPARED:
            raise MoveGoneError(f"move {migration_id}: already prepared, pages may no longer change")
        reservation.phase = TargetPhase.RECEIVING
        reservation.lease_until = now + self.lease_seconds
        return reservation

    def prepared(
        self, migration_id: str, session_id: str, generation: int, copy: PreparedCopy, now: float
    ) -> Reservation:
        """The copy is complete and verified; it may be activated while the lease lasts. Repeats are fine."""
        reservation = self._require(migration_id, session_id, generation)
        reservation.phase, reservation.copy, reservation.epoch = TargetPhase.PREPARED, copy, copy.epoch
        reservation.lease_until = now + self.lease_seconds
        return reservation

    def activate(self, reservation: Reservation, epoch: Epoch) -> None:
        """The gateway made this worker the owner."""
        reservation.phase, reservation.active_epoch = TargetPhase.ACTIVE, epoch
        self._end(reservation.migration_id, reservation.session_id, reservation)

    def free(self, migration_id: str, session_id: str) -> Reservation | None:
        """Ends the move and leaves a tombstone, also for one never heard of; returns the reservation if it held room."""
        key = (migration_id, session_id)
        reservation = self._open.get(key)
        if reservation is not None:
            reservation.phase = TargetPhase.FREED
            self._end(*key, reservation)
        elif key not in self._ended:
            self._end(*key, None)
        return reservation

    def expired(self, now: float) -> list[Reservation]:
        """Open reservations whose lease ran out."""
        return [r for r in self._open.values() if now >= r.lease_until]

    def _require(self, migration_id: str, session_id: str, generation: int) -> Reservation:
        reservation = self._open.get((migration_id, session_id))
        if reservation is None:
            raise MoveGoneError(
                f"move {migration_id} of session {session_id}: no reservation here; offer again with a new migration id"
            )
        if reservation.generation != generation:
            raise MoveGoneError(
                f"move {migration_id}: expected reservation generation {reservation.generation}, found {generation}"
            )
        return reservation

    def _end(self, migration_id: str, session_id: str, reservation: Reservation | None) -> None:
        key = (migration_id, session_id)
        self._open.pop(key, None)
        self._ended[key] = reservation
        while len(self._ended) > self._max_ended:
            self._ended.popitem(last=False)
