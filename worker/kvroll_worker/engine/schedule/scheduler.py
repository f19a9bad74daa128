"""Which rows the next step computes: decode rows first, then prefill chunks, under one token budget. No torch, no clock.

Sessions are served by priority, then by arrival. Admission is by pages; when a running session needs a page and none is free, the last
in that order is preempted: it comes back with what was spilled, or is cached, of its KV, and recomputes the rest. What is being moved
(frozen, held, parked, reserved) is never preempted.

Fairness, in steps: a decoding session that keeps its pages has a row in every step, and beside decode rows a step computes at most
`prefill_tokens_beside_decode` others; so between two tokens of a session lies one step of bounded size, however long a prompt is. Of
the B prefill rows of a step each of the first B/`prefill_share_tokens` prefilling sessions gets at least a share (or its rest), so a
prompt of L tokens is through after L/share of these steps, however long those before it are.
"""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_worker.engine.schedule.paging import Paging
from kvroll_worker.engine.session import EngineSession, PageReservation
from kvroll_worker.kv.pool import NULL_PAGE, NoPageError
from kvroll_worker.request import NoRoomError

DEFAULT_BATCH_TOKENS = 64
"""Tokens of a step. On a CPU more rows gain nothing past the kernels' tile of eight, and everybody waits for a step to end: other sessions'
tokens, and every round of every move (a roll by Replay took 157 s with 256 and stalled its sessions for 11 s)."""


@dataclass(frozen=True)
class Limits:
    """Sizes of a step. `prefill_tokens_beside_decode` bounds how long a long prompt makes the others' next token wait,
    `prefill_share_tokens` (the kernels' tile of rows) how long it makes prompts behind it wait."""

    max_sessions: int
    max_batch_tokens: int
    prefill_tokens_beside_decode: int = 32
    prefill_share_tokens: int = 8


class Chunk(NamedTuple):
    """Consecutive ids of one session to compute in this step; the last row of it samples if `samples`."""

    session: EngineSession
    start: int
    length: int
    samples: bool


class Scheduler:
    """Owns every session's place: waiting, running (has a slot and pages) or reserved."""

    def __init__(self, paging: Paging, limits: Limits) -> None:
        self._paging = paging
        self._pool = paging.pool
        self._limits = limits
        self._free_slots = list(range(limits.max_sessions - 1, -1, -1))
        self.waiting: list[EngineSession] = []  # both in order of service
        self.running: list[EngineSession] = []
        self.reservations: dict[str, PageReservation] = {}
        self.preemptions_total = 0

    def add(self, session: EngineSession) -> None:
        insort(self.waiting, session, key=_order)

    def remove(self, session: EngineSession) -> None:
        """Takes a session out and frees what it held."""
        self._paging.forget(session)
        if session.slot is None:
            self.waiting.remove(session)
        else:
            self._take_slot(session)
            self._paging.give_back(session)

    def reserve(self, session_id: str, num_pages: int, first_page: int = 0) -> None:
        """Keeps pages (and at first a slot) for a session to come, none before `first_page`; repeats grow it.

        Raises:
            NoRoomError: too few free pages, or no slot; what was reserved before stays.
        """
        sealing, tokens = self._paging.open.sealing, num_pages * PAGE_TOKENS
        self.reserve_forms(session_id, sealing.settled(tokens), sealing.opened(tokens), first_page)

    def reserve_forms(self, session_id: str, num_pages: int, num_open: int, first_page: int = 0) -> None:
        """The same by how many of the pages are open ones."""
        reservation = self.reservations.get(session_id)
        if reservation is None and not self._free_slots:
            raise NoRoomError(f"all {self._limits.max_sessions} session slots are taken; wait, or use another worker")
        passed = [] if reservation else [NULL_PAGE] * first_page
        missing = num_pages - len(reservation.pages if reservation else passed)
        pages: list[int] = []
        try:
            pages = self._pool.allocate(max(missing, 0))
            opened = self._paging.open.allocate(max(num_open - len(reservation.open_pages if reservation else []), 0))
        except NoPageError as error:
            self._pool.release(reversed(pages))
            raise NoRoomError(
                f"no room for {num_pages + num_open} pages of {session_id}: {error}; wait, or use another worker"
            ) from error
        if reservation is None:
            reservation = self.reservations[session_id] = PageReservation(self._free_slots.pop(), passed)
        reservation.pages += pages
        reservation.open_pages += opened

    def free_reservation(self, session_id: str) -> None:
        if (reservation := self.reservations.pop(session_id, None)) is not None:
            self._pool.release(reversed(reservation.held_pages))
            self._paging.open.release(reservation.open_pages)
            self._free_slots.append(reservation.slot)

    def occupy(self, session: EngineSession) -> None:
        """Turns the session's reservation into its pages and slot."""
        reservation = self.reservations.pop(session.session_id)
        session.slot, session.pages, session.open_pages = reservation.slot, reservation.pages, reservation.open_pages
        session.num_admitted = session.num_tokens
        insort(self.running, session, key=_order)

    def schedule(self) -> list[Chunk]:
        """The rows of one step; at most one chunk a session. Empty when nothing can run."""
        chunks = self._decode_chunks()
        budget = self._limits.max_batch_tokens - len(chunks)
        if chunks:
            budget = min(budget, self._limits.prefill_tokens_beside_decode)
        decoding = {chunk.session for chunk in chunks}
        self._admit_waiting(budget, decoding)
        behind = self._prefilling(decoding)
        while behind and budget > 0:
            session = behind.pop(0)
            rows = min(budget, max(self._share(session), budget - sum(map(self._share, behind))))
            if rows > 0 and session.num_missing and self._make_room(session):
                chunks.append(_chunk(session, rows))
                budget -= chunks[-1].length
        # A prefilling session that still lacked pages (it was extended) may have preempted one that was to decode.
        return [chunk for chunk in chunks if chunk.session.slot is not None]

    def has_work(self) -> bool:
        """True if `schedule` would give rows or admit a session."""
        free, opened = self._pool.num_free, self._paging.open.num_free
        runnable = (
            s.num_missing and (not s.is_protected or (s.num_missing_pages <= free and s.num_missing_open <= opened))
            for s in self.running
        )
        return any(runnable) or self._next_admissible() is not None

    def waits_for_room(self) -> bool:
        """True if the next session in line would run, were there more free pages."""
        head = self._next_in_line()
        return head is not None and not self._has_room_for(head)

    def holders(self) -> list[list[int]]:
        """The page list of everyone who holds pages."""
        return [s.held_pages for s in self.running] + [r.held_pages for r in self.reservations.values()]

    def open_holders(self) -> list[list[int]]:
        """The same of open pages."""
        return [s.open_pages for s in self.running] + [r.open_pages for r in self.reservations.values()]

    def slots_balance(self) -> bool:
        """Every slot is free, a session's or a reservation's, exactly once."""
        taken = [s.slot for s in self.running] + [r.slot for r in self.reservations.values()]
        return sorted([*self._free_slots, *(slot for slot in taken if slot is not None)]) == list(
            range(self._limits.max_sessions)
        )

    def _decode_chunks(self) -> list[Chunk]:
        # In order, and only those behind are preempted: what is already in the list stays valid.
        chunks = []
        for session in list(self.running):
            if session.slot is not None and _decodes(session) and self._make_room(session):
                chunks.append(_chunk(session, 1))
        return chunks

    def _admit_waiting(self, budget: int, decoding: set[EngineSession]) -> None:
        """Admits while there are rows left for a share of each prefilling session."""
        budget -= sum(map(self._share, self._prefilling(decoding)))
        while budget > 0 and (head := self._next_admissible()):
            self._admit(head)
            budget -= self._share(head)

    def _share(self, session: EngineSession) -> int:
        """Rows that the session gets whoever is ahead of it. None while it computes ahead for a move: it still streams elsewhere."""
        share = min(session.num_missing, self._limits.prefill_share_tokens)
        return share if not session.hold or self._is_awaited(session) else 0

    def _is_awaited(self, session: EngineSession) -> bool:
        """True for a moving session with only its newest tokens left: its client may be waiting for them already."""
        return session.hold and session.num_missing <= self._limits.prefill_tokens_beside_decode

    def _prefilling(self, decoding: set[EngineSession]) -> list[EngineSession]:
        prefilling = [s for s in self.running if s.num_missing and s not in decoding]
        return sorted(prefilling, key=lambda s: not self._is_awaited(s))

    def _make_room(self, session: EngineSession) -> bool:
        """Gives the session pages for all its ids, preempting those behind it; False if it has to wait (or was preempted itself)."""
        while session.slot is not None:
            try:
                self._paging.grow(session)
            except NoPageError:
                victim = self._victim_for(session)
                if victim is None:
                    return False
                self.preempt(victim)
            else:
                return True
        return False

    def _victim_for(self, session: EngineSession) -> EngineSession | None:
        behind = (s for s in reversed(self.running) if s.order >= session.order)
        return next((s for s in behind if not s.is_protected), None)

    def preempt(self, session: EngineSession) -> None:
        """Takes a running session's slot and pages; it waits, and comes back with what the cache or the spill kept."""
        self.preemptions_total += 1
        self._take_slot(session)
        self._paging.preempt(session)
        self.add(session)

    def _take_slot(self, session: EngineSession) -> None:
        assert session.slot is not None
        self.running.remove(session)
        self._free_slots.append(session.slot)
        session.slot = None

    def _next_admissible(self) -> EngineSession | None:
        # Strictly in order: a big one at the head is not overtaken for ever by small ones behind it. Only one whose prefix is being
        # computed steps aside, until that is there to be shared.
        head = self._next_in_line()
        return head if head is not None and self._has_room_for(head) else None

    def _next_in_line(self) -> EngineSession | None:
        if not self._free_slots:
            return None
        return next((s for s in self.waiting if not s.frozen and not self._awaits_prefix(s)), None)

    def _has_room_for(self, session: EngineSession) -> bool:
        # One spare page for each running session that may grow, so that an admission does not cause the next preemption.
        spare = sum(1 for s in self.running if not s.is_protected)
        fits = self._paging.num_needed(session) + spare <= self._pool.num_free
        return fits and self._paging.open.has_room(session, self.running)

    def _awaits_prefix(self, session: EngineSession) -> bool:
        """True while a session ahead of this one computes pages that it can share; there are finitely many ahead, so it ends."""
        if session.awaits is not None and not _computes(*session.awaits):
            session.awaits = None
        if session.awaits is None:
            ahead = (s for s in self.running if s.order < session.order)
            session.awaits = self._longest_shared(session, (s for s in ahead if _computes(s, s.num_kv + 1)))
        return session.awaits is not None

    def _longest_shared(
        self, session: EngineSession, leaders: Iterable[EngineSession]
    ) -> tuple[EngineSession, int] | None:
        shared = [(leader, self._paging.shared_tokens(session, leader)) for leader in leaders]
        useful = [(leader, tokens) for leader, tokens in shared if _computes(leader, tokens)]
        return max(useful, key=lambda pair: pair[1], default=None)

    def _admit(self, session: EngineSession) -> None:
        self.waiting.remove(session)
        session.slot = self._free_slots.pop()
        self._paging.admit(session)
        insort(self.running, session, key=_order)


def _order(session: EngineSession) -> tuple[int, int]:
    return session.order


def _decodes(session: EngineSession) -> bool:
    return session.num_missing == 1 and not session.hold


def _computes(session: EngineSession, tokens: int) -> bool:
    """True if a running session's next steps compute KV up to that many tokens, and nothing but time is needed for it."""
    prefills = session.slot is not None and session.num_missing > 1 and not session.num_missing_pages
    return prefills and session.num_kv < tokens


def _chunk(session: EngineSession, budget: int) -> Chunk:
    length = min(session.num_missing, budget)
    if (
        session.sealing.seals
    ):  # the page's tokens read the same pages sealed, and only then one ring of open pages will do
        length = min(length, PAGE_TOKENS - session.num_kv % PAGE_TOKENS)
    samples = not session.hold and session.num_kv + length == session.num_tokens
    return Chunk(session, session.num_kv, length, samples)
