"""Pages of preempted sessions kept in ordinary memory, so that coming back costs a copy and not a prefill. No torch."""

from dataclasses import replace
from typing import Protocol

from kvroll_core.budget import BudgetRequest, pages_for
from kvroll_worker.engine.session import Session, Spilled


class PageBytes(Protocol):
    """Where a page's bytes lie; `kvroll_worker.kv.storage.PageStorage` fulfils it."""

    def read_raw(self, page_id: int) -> bytes: ...
    def write(self, page_id: int, data: bytes) -> None: ...


class SpillStore:
    """At most `max_bytes` of spilled pages; what does not fit is recomputed."""

    def __init__(self, storage: PageBytes, page_bytes: int, max_bytes: int) -> None:
        self._storage, self._page_bytes, self._max_bytes = storage, page_bytes, max_bytes
        self.bytes_held = 0
        self.spills_total = 0

    def spill(self, session: Session) -> bool:
        """Copies the pages that hold KV before they are given back; False if there is no room or nothing to keep."""
        first, end = session.num_passed, pages_for(session.num_kv)
        count = end - first
        if not session.num_kv or self.bytes_held + count * self._page_bytes > self._max_bytes:
            return False
        pages = tuple(self._storage.read_raw(page_id) for page_id in session.pages[first:end])
        session.spilled = Spilled(session.num_kv, pages, first)
        self.bytes_held += count * self._page_bytes
        self.spills_total += 1
        return True

    def restore(self, session: Session, num_shared: int) -> None:
        """Writes the spilled pages behind the first `num_shared` into the session's new pages; the shared ones hold the same."""
        spilled = session.spilled
        assert spilled is not None
        for index, page in enumerate(spilled.pages, spilled.first_page):
            if index >= num_shared:
                self._storage.write(session.pages[index], page)
        self.drop(session)

    def drop(self, session: Session) -> None:
        """Forgets what was spilled of a session, if anything."""
        if session.spilled is not None:
            self.bytes_held -= len(session.spilled.pages) * self._page_bytes
            session.spilled = None


def beside_spill(request: BudgetRequest, spill_memory_bytes: int) -> BudgetRequest:
    """The budget's question about what spilled pages leave of the memory."""
    limit = request.memory_limit_bytes
    return request if limit is None else replace(request, memory_limit_bytes=limit - spill_memory_bytes)
