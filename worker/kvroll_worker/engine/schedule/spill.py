"""Pages of preempted sessions kept in ordinary memory, so that coming back costs a copy and not a prefill. No torch."""

from dataclasses import replace
from typing import Protocol

from kvroll_core.budget import BudgetRequest, pages_for
from kvroll_worker.engine.session import EngineSession, Spilled


class PageBytes(Protocol):
    """Where a page's bytes lie; `kvroll_worker.kv.storage.PageStorage` fulfils it."""

    @property
    def page_bytes(self) -> int: ...
    @property
    def open(self) -> "PageBytes | None": ...
    def read_raw(self, page_id: int) -> bytes: ...
    def write(self, page_id: int, data: bytes) -> None: ...


class SpillStore:
    """At most `max_bytes` of spilled pages; what does not fit is recomputed."""

    def __init__(self, storage: PageBytes, max_bytes: int) -> None:
        self._storage, self._max_bytes = storage, max_bytes
        self.bytes_held = 0
        self.spills_total = 0

    def spill(self, session: EngineSession) -> bool:
        """Copies the pages that hold KV before they are given back; False if there is no room or nothing to keep."""
        first, count, beside = session.num_passed, pages_for(session.num_kv), self._storage.open
        border = count if beside is None else session.num_sealed
        needed = (border - first) * self._storage.page_bytes
        needed += 0 if beside is None else (count - border) * beside.page_bytes
        if not count or self.bytes_held + needed > self._max_bytes:
            return False
        pages = tuple(self._storage.read_raw(page_id) for page_id in session.pages[first:border])
        opened: tuple[bytes, ...] = ()
        if beside is not None:
            opened = tuple(beside.read_raw(session.open_page(index)) for index in range(border, count))
        session.spilled = Spilled(session.num_kv, pages, first, opened)
        self.bytes_held += session.spilled.num_bytes
        self.spills_total += 1
        return True

    def restore(self, session: EngineSession, num_shared: int) -> None:
        """Writes the spilled pages behind the first `num_shared` into the session's new pages; the shared ones hold the same."""
        spilled = session.spilled
        assert spilled is not None
        for index, page in enumerate(spilled.pages, spilled.first_page):
            if index >= num_shared:
                self._storage.write(session.pages[index], page)
        if self._storage.open is not None:
            session.num_sealed = len(spilled.pages)
            for index, data in enumerate(spilled.open_pages, session.num_sealed):
                self._storage.open.write(session.open_page(index), data)
        self.drop(session)

    def drop(self, session: EngineSession) -> None:
        """Forgets what was spilled of a session, if anything."""
        if session.spilled is not None:
            self.bytes_held -= session.spilled.num_bytes
            session.spilled = None


def beside_spill(request: BudgetRequest, spill_memory_bytes: int) -> BudgetRequest:
    """The budget's question about what spilled pages leave of the memory."""
    limit = request.memory_limit_bytes
    return request if limit is None else replace(request, memory_limit_bytes=limit - spill_memory_bytes)
