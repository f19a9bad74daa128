"""Which rows the next step computes: decode rows first, then prefill chunks, under one token budget. No torch, no clock.

Admission is by pages, first come first served; when a decoding session needs a page and none is free, the youngest session is
preempted and will recompute. What is being moved (frozen, held, parked, reserved) is never preempted.
"""

from bisect import insort
from dataclasses import dataclass
from typing import NamedTuple

from kvroll_core.budget import pages_for
from kvroll_worker.engine.request import NoRoomError
from kvroll_worker.engine.session import Reservation, Session
from kvroll_worker.kv.pool import NoPageError, PagePool

DEFAULT_BATCH_TOKENS = 64
"""Tokens of a step. On a CPU more rows gain nothing past the kernels' tile of eight, and everybody waits for a step to end: other sessions'
tokens, and every round of every move (a roll by Replay took 157 s with 256 and stalled its sessions for 11 s)."""


@dataclass(frozen=True)
class Limits:
    """Sizes of a step. `prefill_tokens_beside_decode` bounds how long a long prompt makes the others' next token wait."""

    max_sessions: int
    max_batch_tokens: int
    prefill_tokens_beside_decode: int = 32


class Chunk(NamedTuple):
    """Consecutive ids of one session to compute in this step; the last row of it samples if `samples`."""

    session: Session
    start: int
    length: int
    samples: bool


class Scheduler:
    """Owns every session's place: waiting, running (has a slot and pages) or reserved."""

    def __init__(self, pool: PagePool, limits: Limits) -> None:
        self._pool = pool
        self._limits = limits
        self._free_slots = list(range(limits.max_sessions - 1, -1, -1))
        self.waiting: list[Session] = []  # by arrival
        self.running: list[Session] = []  # by arrival
        self.reservations: dict[str, Reservation] = {}
        self.preemptions_total = 0

    def add(self, session: Session) -> None:
        insort(self.waiting, session, key=_arrival)

    def remove(self, session: Session) -> None:
        """Takes a session out and frees what it held."""
        if session.slot is None:
            self.waiting.remove(session)
        else:
            self.running.remove(session)
            self._give_back(session)

    def reserve(self, session_id: str, num_pages: int) -> None:
        """Keeps pages (and at first a slot) for a session to come; repeats grow it.

        Raises:
            NoRoomError: too few free pages, or no slot; what was reserved before stays.
        """
        reservation = self.reservations.get(session_id)
        if reservation is None and not self._free_slots:
            raise NoRoomError(f"all {self._limits.max_sessions} session slots are taken; wait, or use another worker")
        missing = num_pages - (len(reservation.pages) if reservation else 0)
        try:
            pages = self._pool.allocate(max(missing, 0))
        except NoPageError as error:
            raise NoRoomError(
                f"no room for {num_pages} pages of {session_id}: {error}; wait, or use another worker"
            ) from error
        if reservation is None:
            reservation = self.reservations[session_id] = Reservation(self._free_slots.pop())
        reservation.pages += pages

    def free_reservation(self, session_id: str) -> None:
        if (reservation := self.reservations.pop(session_id, None)) is not None:
            self._pool.release(reservation.pages)
            self._free_slots.append(reservation.slot)

    def occupy(self, session: Session) -> None:
        """Turns the session's reservation into its pages and slot."""
        reservation = self.reservations.pop(session.session_id)
        session.slot, session.pages = reservation.slot, reservation.pages
        insort(self.running, session, key=_arrival)

    def schedule(self) -> list[Chunk]:
        """The rows of one step; at most one chunk a session. Empty when nothing can run."""
        chunks = self._decode_chunks()
        budget = self._limits.max_batch_tokens - len(chunks)
        if chunks:
            budget = min(budget, self._limits.prefill_tokens_beside_decode)
        for session in list(self.running):
            if budget > 0 and _needs_prefill(session) and self._make_room(session):
                chunks.append(_chunk(session, budget))
                budget -= chunks[-1].length
        while budget > 0 and (head := self._next_admissible()):
            self._admit(head)
            if head.num_missing:  # a held one-token prompt has nothing to compute
                chunks.append(_chunk(head, budget))
                budget -= chunks[-1].length
        return chunks

    def has_work(self) -> bool:
        """True if `schedule` would give rows or admit a session."""
        free = self._pool.num_free
        runnable = (s.num_missing and (not s.is_protected or s.num_missing_pages <= free) for s in self.running)
        return any(runnable) or self._next_admissible() is not None

    def holders(self) -> list[list[int]]:
        """The page list of everyone who holds pages."""
        return [s.pages for s in self.running] + [r.pages for r in self.reservations.values()]

    def slots_balance(self) -> bool:
        """Every slot is free, a session's or a reservation's, exactly once."""
        taken = [s.slot for s in self.running] + [r.slot for r in self.reservations.values()]
        return sorted([*self._free_slots, *(slot for slot in taken if slot is not None)]) == list(
            range(self._limits.max_sessions)
        )

    def _decode_chunks(self) -> list[Chunk]:
        # Oldest first, and only younger ones are preempted: what is already in the list stays valid.
        chunks = []
        for session in list(self.running):
            if session.slot is not None and _needs_decode(session) and self._make_room(session):
                chunks.append(_chunk(session, 1))
        return chunks

    def _make_room(self, session: Session) -> bool:
        """Gives the session pages for all its ids, preempting younger ones; False if it has to wait (or was preempted itself)."""
        while session.num_missing_pages > self._pool.num_free:
            victim = next(
                (s for s in reversed(self.running) if not s.is_protected and s.arrival >= session.arrival), None
            )
            if victim is None:
                return False
            self._preempt(victim)
            if victim is session:
                return False
        if session.slot is None:
            return False
        session.pages += self._pool.allocate(session.num_missing_pages)
        return True

    def _preempt(self, session: Session) -> None:
        self.preemptions_total += 1
        self.running.remove(session)
        self._give_back(session)
        self.add(session)

    def _give_back(self, session: Session) -> None:
        assert session.slot is not None
        self._pool.release(session.pages)
        self._free_slots.append(session.slot)
        session.slot, session.pages, session.num_kv, session.num_tabled = None, [], 0, 0

    def _next_admissible(self) -> Session | None:
        # Strictly in order: a big one at the head is not overtaken for ever by small ones behind it.
        head = next((s for s in self.waiting if not s.frozen), None)
        if head is None or not self._free_slots:
            return None
        # One spare page for each running session that may grow, so that an admission does not cause the next preemption.
        spare = sum(1 for s in self.running if not s.is_protected)
        needed = min(pages_for(head.num_tokens) + spare, self._pool.num_usable)
        return head if needed <= self._pool.num_free else None

    def _admit(self, session: Session) -> None:
        self.waiting.remove(session)
        session.slot = self._free_slots.pop()
        session.pages = self._pool.allocate(pages_for(session.num_tokens))
        insort(self.running, session, key=_arrival)


def _arrival(session: Session) -> int:
    return session.arrival


def _needs_decode(session: Session) -> bool:
    return session.num_missing == 1 and not session.hold


def _needs_prefill(session: Session) -> bool:
    return session.slot is not None and (session.num_missing > 1 or (session.hold and session.num_missing > 0))


def _chunk(session: Session, budget: int) -> Chunk:
    length = min(session.num_missing, budget)
    samples = not session.hold and session.num_kv + length == session.num_tokens
    return Chunk(session, session.num_kv, length, samples)
