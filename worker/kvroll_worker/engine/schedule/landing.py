"""Where a session of another worker lands: pages are reserved, written, shared, read back, and become a session."""

from kvroll_core.budget import pages_for
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_worker.engine.schedule.paging import Paging
from kvroll_worker.engine.schedule.scheduler import Scheduler
from kvroll_worker.engine.session import EngineSession, PageReservation
from kvroll_worker.kv.mixed_storage import MixedStorage
from kvroll_worker.kv.page_hash import content_hash as hash_of
from kvroll_worker.kv.pool import NULL_PAGE, NoPageError
from kvroll_worker.kv.storage import PageStorage
from kvroll_worker.request import EngineError, NoRoomError, UnknownSessionError


class LandingZone:
    """The write side of a move; the pages of a reservation belong to nobody else until `settle`.

    A landed session's full pages enter the prefix cache only if its KV is what a prefill here would give: after Exact moves. Pages that
    came by Convert hold other numbers than a prefill's; who took them by ids would silently read wrong KV, so they stay out of it, as
    do all that the session computes from them.
    """

    def __init__(self, scheduler: Scheduler, paging: Paging, storage: PageStorage | MixedStorage) -> None:
        self._scheduler, self._paging, self._pool, self._storage = scheduler, paging, paging.pool, storage
        self._sealing = paging.open.sealing

    def write_page(self, session_id: str, index: int, data: bytes, content_hash: bytes | None) -> None:
        """Stores a page's bytes; with a hash the page is full, and others may share it once it is read back with just that hash: nobody
        can find by name what is not what the name says.

        In a sealed format a page of the open ones' size lands open, in its place of the ring.
        """
        opened = self._storage.open
        if opened is not None and len(data) == opened.page_bytes:
            reservation = self._reserved(session_id)
            place = self._place(reservation, index)
            opened.write(reservation.open_pages[place], data)
            reservation.landed_open[place] = index
            reservation.landed.discard(index)
            return
        pages = self._pages(session_id, index)
        self._make_private(pages, index)
        self._storage.write(pages[index], data)
        self._landed(session_id, index)
        if content_hash is not None and hash_of(self._storage.read_raw(pages[index])) == content_hash:
            self._pool.register(pages[index], content_hash)

    def adopt_page(self, session_id: str, index: int, content_hash: bytes) -> bool:
        """Puts a page that is already here in that place; False if there is none."""
        self._reserved(session_id)
        shared = self._pool.share(content_hash)
        if shared is None:
            return False
        try:
            pages = self._pages(session_id, index)
        except EngineError:
            self._pool.release([shared])
            raise
        self._pool.release([pages[index]])
        pages[index] = shared
        self._landed(session_id, index)
        return True

    def read_back(self, session_id: str, index: int) -> bytes:
        """The bytes as they lie in memory."""
        reservation = self._reserved(session_id)
        if self._storage.open is not None and index in reservation.landed_open.values():
            return self._storage.open.read_raw(reservation.open_pages[self._place(reservation, index)])
        return self._storage.read_raw(self._pages(session_id, index)[index])

    def settle(self, session: EngineSession, num_kv_tokens: int) -> None:
        """Turns the reservation into a held session whose KV covers its first `num_kv_tokens` ids; what it needs beside the pages that
        came it gets when it runs.
        """
        reservation = self._reserved(session.session_id)
        pages = reservation.pages
        most = min(session.num_tokens - 1, (len(pages) + len(reservation.open_pages)) * PAGE_TOKENS)
        if not 0 <= num_kv_tokens <= most:
            have = f"{session.num_tokens} ids, {len(pages)} pages"
            raise EngineError(
                f"expected KV of {session.session_id} for 0 to {most} tokens ({have}), found {num_kv_tokens}"
            )
        self._keep_needed(session, reservation, num_kv_tokens)
        # The next token is written into the first page that is not full: nobody else may hold that one.
        border = num_kv_tokens // PAGE_TOKENS
        if self._sealing.seals:
            border = session.num_sealed = self._sealing.sealed(num_kv_tokens)
            self._check_forms(session, reservation, num_kv_tokens)
        for index in range(border, len(pages)):
            self._make_private(pages, index)
        session.num_kv, session.parked = num_kv_tokens, True
        session.state.kv_converted = session.state.kv_converted and num_kv_tokens > 0
        self._scheduler.occupy(session)
        self._paging.advance(session)

    def _keep_needed(self, session: EngineSession, reservation: PageReservation, num_kv: int) -> None:
        """Gives back what lies behind the session's next step, and before its windows: that may never have come."""
        pages, num_absent = reservation.pages, len(reservation.pages) - len(reservation.held_pages)
        first, end = session.window.first_page(num_kv), session.end_page(num_kv)
        if num_absent > first and num_kv:
            raise EngineError(
                f"expected {session.session_id} with KV of {num_kv} tokens to come with its pages from {first} on, found them from"
                f" {num_absent} on"
            )
        if num_absent > first:
            end = 0  # it computes all of its ids again: nothing that came is of use
        dropped = [*pages[:first], *pages[end:]]
        self._pool.release(page_id for page_id in reversed(dropped) if page_id != NULL_PAGE)
        del pages[end:]
        pages[:first] = [NULL_PAGE] * first
        session.num_passed = first

    def _make_private(self, pages: list[int], index: int) -> None:
        page_id = pages[index]
        if self._pool.ref_count(page_id) == 1:
            self._paging.cache.drop(page_id)
            self._pool.forget(page_id)
            return
        try:
            [copy] = self._pool.allocate(1)
        except NoPageError as error:
            raise NoRoomError(f"page {index} is shared and there is no free page to copy it to: {error}") from error
        self._storage.copy(page_id, copy)
        self._pool.release([page_id])
        pages[index] = copy

    def _check_forms(self, session: EngineSession, reservation: PageReservation, num_kv_tokens: int) -> None:
        """Every page has to be there in the form in which the next token reads it."""
        border, count = session.num_sealed, pages_for(num_kv_tokens)
        sealed = [index for index in range(border) if index not in reservation.landed]
        opened = [i for i in range(border, count) if reservation.landed_open.get(i % self._sealing.open_pages) != i]
        if sealed or opened:
            raise EngineError(
                f"expected pages 0 to {border - 1} of {session.session_id} sealed and {border} to {count - 1} open for"
                f" {num_kv_tokens} tokens; not so {(sealed + opened)[:8]}: the source seals by another rule"
            )

    def _landed(self, session_id: str, index: int) -> None:
        if not self._sealing.seals:
            return
        reservation = self._reserved(session_id)
        reservation.landed.add(index)
        for place in [place for place, held in reservation.landed_open.items() if held == index]:
            del reservation.landed_open[place]

    def _place(self, reservation: PageReservation, index: int) -> int:
        place = index % self._sealing.open_pages
        if index < 0 or place >= len(reservation.open_pages):
            raise EngineError(f"expected a page that {len(reservation.open_pages)} open pages hold, found {index}")
        return place

    def _pages(self, session_id: str, index: int) -> list[int]:
        """The reservation's pages. A sealed page may lie behind those that are sealed in the end only: there is more to come."""
        reservation = self._reserved(session_id)
        pages, capacity = reservation.pages, len(reservation.pages) + len(reservation.open_pages)
        if not 0 <= index < capacity:
            raise EngineError(f"expected a page index below {capacity} of {session_id}, found {index}; reserve more")
        if index >= len(pages):
            self._scheduler.reserve_forms(session_id, index + 1, 0)
        if pages[index] == NULL_PAGE:
            raise EngineError(
                f"page {index} of {session_id} was reserved as absent; offer again with the pages held now"
            )
        return pages

    def _reserved(self, session_id: str) -> PageReservation:
        reservation = self._scheduler.reservations.get(session_id)
        if reservation is None:
            raise UnknownSessionError(f"nothing is reserved for {session_id}; reserve first")
        return reservation
