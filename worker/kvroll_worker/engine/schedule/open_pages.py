"""The 16-bit pages that hold the newest tokens of sessions in a sealed format (kivi): a second, small pool beside the pages. No torch."""

from collections.abc import Iterable

from kvroll_core.precision.sealing import UNSEALED, Sealing
from kvroll_worker.engine.session import EngineSession
from kvroll_worker.kv.pool import NULL_PAGE, PagePool


class OpenPages:
    """A session holds at most `sealing.open_pages` of them, a ring: page i is in the place i mod that many.

    In a format without open pages there are none, every question is answered so, and nothing is kept.
    """

    def __init__(self, sealing: Sealing | None = None, num_pages: int = 0) -> None:
        self.sealing = sealing or UNSEALED
        self.pool = PagePool(num_pages + 1) if self.sealing.seals else None

    @property
    def num_free(self) -> int:
        """Open pages that can be given now."""
        return self.pool.num_free if self.pool else 0

    @property
    def num_usable(self) -> int:
        """All of them."""
        return self.pool.num_usable if self.pool else 0

    def allocate(self, count: int) -> list[int]:
        """That many pages; none of none. Raises NoPageError."""
        return self.pool.allocate(count) if self.pool else []

    def release(self, page_ids: list[int]) -> None:
        """Gives pages back."""
        if self.pool:
            self.pool.release(reversed(page_ids))

    def grow(self, session: EngineSession) -> None:
        """Gives a session the open pages that it lacks for its ids. Raises NoPageError."""
        session.open_pages += self.allocate(session.num_missing_open)

    def give_back(self, session: EngineSession) -> None:
        """Takes all of a session's, and what it knew of sealing."""
        self.release(session.open_pages)
        session.open_pages, session.num_open_tabled, session.num_sealed = [], 0, 0

    def has_room(self, session: EngineSession, running: Iterable[EngineSession]) -> bool:
        """True if a waiting session could be admitted and each running one that may grow could take one more."""
        if not self.pool:
            return True
        spare = sum(1 for s in running if not s.is_protected and len(s.open_pages) < self.sealing.open_pages)
        return self.sealing.opened(session.num_tokens) + spare <= self.pool.num_free

    def check_integrity(self, holders: Iterable[list[int]]) -> None:
        """Raises IntegrityError if the books do not balance."""
        if self.pool:
            self.pool.check_integrity(holders)


def due_seals(session: EngineSession, position: int) -> list[tuple[int, int]]:
    """(open page, page) of every page to be sealed before the token at `position` is computed; the session counts them as sealed.

    The ring's place of a page is written anew only behind that, by the first token of the page that takes it.
    """
    border = session.sealing.sealed(position)
    due = [(session.open_page(index), session.pages[index]) for index in range(session.num_sealed, border)]
    session.num_sealed = max(session.num_sealed, border)
    return [pair for pair in due if NULL_PAGE not in pair]
