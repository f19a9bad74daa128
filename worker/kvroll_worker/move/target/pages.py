"""Pages on their way in: parts joined in order, each checked by chunk and whole, before anything of them is written."""

from dataclasses import dataclass

from kvroll.v1 import session_pb2 as spb
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_worker.kv.page_hash import content_hash
from kvroll_worker.move.manifest import HASH_BYTES, chunk_crc
from kvroll_worker.move.target.reservations import BadMoveError

_MAX_PARTS = 4096


@dataclass(frozen=True)
class WholePage:
    """A page whose parts are all here; `data` is empty for one that is only named."""

    index: int
    full: bool
    content_hash: bytes
    data: bytes


class PageAssembler:
    """Joins the parts of pages, in order, and remembers which pages did not verify."""

    def __init__(self, page_bytes: int, max_pages: int, open_page_bytes: int = 0) -> None:
        self._page_bytes, self._open_bytes = page_bytes, open_page_bytes
        self._max_pages = max_pages
        self._parts: list[bytes] = []
        self._sound = True
        self.bad: set[int] = set()
        self.bytes_received = 0

    def add(self, page: spb.Page) -> WholePage | None:
        """Takes one message; returns the page once its last part is here and its hash agrees.

        Raises:
            BadMoveError: an index, size or order that no correct source sends.
        """
        self._check(page)
        if page.num_parts == 0:
            return WholePage(page.page_index, page.valid_tokens == PAGE_TOKENS, page.content_hash, b"")
        if page.part == 0:
            self._parts, self._sound = [], True
        if page.part != len(self._parts):
            raise BadMoveError(f"page {page.page_index}: expected part {len(self._parts)}, found {page.part}")
        self.bytes_received += len(page.data)
        self._parts.append(page.data)
        self._sound = self._sound and chunk_crc(page.data) == page.crc32c
        if page.part + 1 < page.num_parts:
            return None
        data = b"".join(self._parts)
        self._parts = []
        sizes = {self._page_bytes, self._open_bytes or self._page_bytes}
        if not self._sound or len(data) not in sizes or content_hash(data) != page.content_hash:
            self.bad.add(page.page_index)
            return None
        # An open page goes on to change although its tokens are all there: it is its session's alone.
        full = page.valid_tokens == PAGE_TOKENS and len(data) != self._open_bytes
        return WholePage(page.page_index, full, page.content_hash, data)

    def _check(self, page: spb.Page) -> None:
        if page.page_index >= self._max_pages:
            raise BadMoveError(f"expected a page index below {self._max_pages}, found {page.page_index}")
        if (
            not 0 < page.valid_tokens <= PAGE_TOKENS
            or len(page.content_hash) != HASH_BYTES
            or page.num_parts > _MAX_PARTS
        ):
            found = f"{page.valid_tokens} tokens, {len(page.content_hash)} hash bytes, {page.num_parts} parts"
            raise BadMoveError(
                f"page {page.page_index}: expected 1 to {PAGE_TOKENS} tokens and {HASH_BYTES} hash bytes, found {found}"
            )
        most = max(self._page_bytes, self._open_bytes)
        if sum(map(len, self._parts)) + len(page.data) > most:
            raise BadMoveError(f"page {page.page_index}: more than the {most} bytes of a page here")
