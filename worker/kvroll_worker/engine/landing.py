"""Where a session of another worker lands: pages are reserved, written, shared, read back, and become a session."""

from kvroll_core.formats import PAGE_TOKENS
from kvroll_worker.engine.paging import Paging
from kvroll_worker.engine.request import EngineError, NoRoomError, UnknownSessionError
from kvroll_worker.engine.scheduler import Scheduler
from kvroll_worker.engine.session import Session
from kvroll_worker.kv.mixed_storage import MixedStorage
from kvroll_worker.kv.pool import NULL_PAGE, NoPageError
from kvroll_worker.kv.storage import PageStorage


class LandingZone:
    """The write side of a move; the pages of a reservation belong to nobody else until `settle`.

    A landed session's full pages enter the prefix cache only if its KV is what a prefill here would give: after Exact moves. Pages that
    came by Convert hold other numbers than a prefill's; who took them by ids would silently read wrong KV, so they stay out of it, as
    do all that the session computes from them.
    """

    def __init__(self, scheduler: Scheduler, paging: Paging, storage: PageStorage | MixedStorage) -> None:
        self._scheduler, self._paging, self._pool, self._storage = scheduler, paging, paging.pool, storage

    def write_page(self, session_id: str, index: int, data: bytes, content_hash: bytes | None) -> None:
        """Stores a page's bytes; with a hash the page is full and others may share it."""
        pages = self._pages(session_id, index)
        self._make_private(pages, index)
        self._storage.write(pages[index], data)
        if content_hash is not None:
            self._pool.register(pages[index], content_hash)

    def adopt_page(self, session_id: str, index: int, content_hash: bytes) -> bool:
        """Puts a page that is already here in that place; False if there is none."""
        pages = self._pages(session_id, index)
        shared = self._pool.share(content_hash)
        if shared is None:
            return False
        self._pool.release([pages[index]])
        pages[index] = shared
        return True

    def read_back(self, session_id: str, index: int) -> bytes:
        """The bytes as they lie in memory."""
        return self._storage.read_raw(self._pages(session_id, index)[index])

    def settle(self, session: Session, num_kv_tokens: int) -> None:
        """Turns the reservation into a held session whose KV covers its first `num_kv_tokens` ids; what it needs beside the pages that
        came it gets when it runs.
        """
        pages = self._reserved(session.session_id)
        most = min(session.num_tokens - 1, len(pages) * PAGE_TOKENS)
        if not 0 <= num_kv_tokens <= most:
            have = f"{session.num_tokens} ids, {len(pages)} pages"
            raise EngineError(
                f"expected KV of {session.session_id} for 0 to {most} tokens ({have}), found {num_kv_tokens}"
            )
        self._keep_window(session, pages, num_kv_tokens)
        # The next token is written into the first page that is not full: nobody else may hold that one.
        for index in range(num_kv_tokens // PAGE_TOKENS, len(pages)):
            self._make_private(pages, index)
        session.num_kv, session.parked = num_kv_tokens, True
        session.state.kv_converted = session.state.kv_converted and num_kv_tokens > 0
        self._scheduler.occupy(session)
        self._paging.advance(session)

    def _keep_window(self, session: Session, pages: list[int], num_kv: int) -> None:
        """Gives back what lies behind the session's next step, and before its windows: that may never have come."""
        num_absent = len(pages) - len(self._scheduler.reservations[session.session_id].held_pages)
        first, end = session.window.first_page(num_kv), session.window.end_page(num_kv, session.num_tokens)
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

    def _pages(self, session_id: str, index: int) -> list[int]:
        pages = self._reserved(session_id)
        if not 0 <= index < len(pages):
            raise EngineError(f"expected a page index below {len(pages)} of {session_id}, found {index}; reserve more")
        if pages[index] == NULL_PAGE:
            raise EngineError(
                f"page {index} of {session_id} was reserved as absent; offer again with the pages held now"
            )
        return pages

    def _reserved(self, session_id: str) -> list[int]:
        reservation = self._scheduler.reservations.get(session_id)
        if reservation is None:
            raise UnknownSessionError(f"nothing is reserved for {session_id}; reserve first")
        return reservation.pages
