"""What has landed of one session that is moving here, and how a page lands: checked by chunk, by page, and again by reading back."""

from dataclasses import dataclass, field

from kvroll.v1 import session_pb2 as spb
from kvroll_core.budget import page_window
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_worker.kv.page_hash import content_hash
from kvroll_worker.move.manifest import HASH_BYTES, chunk_crc
from kvroll_worker.move.target.reservations import MoveGoneError, Reservation
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.port import EnginePort
from kvroll_worker.request import EngineError, SessionState

_MAX_PARTS = 4096


class BadPageError(Exception):
    """A Page message that no correct source sends: the move is aborted."""


@dataclass(eq=False)
class Arrival:
    """One reservation's content. `pages` is the hash of every page that is here and verified, by page index."""

    response: spb.OfferResponse
    state: SessionState  # for Replay its output ids grow with every Push
    pages: dict[int, bytes] = field(default_factory=dict)
    adopted: set[int] = field(default_factory=set)
    record: SessionRecord | None = None  # set by Prepare

    @property
    def max_pages(self) -> int:
        """No session may ask for more pages than its longest possible context needs."""
        most = max(len(self.state.prompt_token_ids) + self.state.sampling.max_tokens, self.state.num_tokens)
        return -(-most // PAGE_TOKENS)


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
            BadPageError: an index, size or order that no correct source sends.
        """
        self._check(page)
        if page.num_parts == 0:
            return WholePage(page.page_index, page.valid_tokens == PAGE_TOKENS, page.content_hash, b"")
        if page.part == 0:
            self._parts, self._sound = [], True
        if page.part != len(self._parts):
            raise BadPageError(f"page {page.page_index}: expected part {len(self._parts)}, found {page.part}")
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
            raise BadPageError(f"expected a page index below {self._max_pages}, found {page.page_index}")
        if (
            not 0 < page.valid_tokens <= PAGE_TOKENS
            or len(page.content_hash) != HASH_BYTES
            or page.num_parts > _MAX_PARTS
        ):
            found = f"{page.valid_tokens} tokens, {len(page.content_hash)} hash bytes, {page.num_parts} parts"
            raise BadPageError(
                f"page {page.page_index}: expected 1 to {PAGE_TOKENS} tokens and {HASH_BYTES} hash bytes, found {found}"
            )
        most = max(self._page_bytes, self._open_bytes)
        if sum(map(len, self._parts)) + len(page.data) > most:
            raise BadPageError(f"page {page.page_index}: more than the {most} bytes of a page here")


def land(engine: EnginePort, session_id: str, arrival: Arrival, pages: list[WholePage]) -> list[int]:
    """Writes pages into the reservation and verifies each by reading it back; returns those that are not here after all.

    Runs on the engine's thread.

    Raises:
        NoRoomError: the reservation cannot grow.
    """
    missing = []
    for page in pages:
        if arrival.pages.get(page.index) == page.content_hash:
            continue  # a repeat
        if page.index in arrival.adopted:
            raise BadPageError(f"page {page.index} is shared and cannot become another page")
        engine.reserve(session_id, page.index + 1)
        if not page.data:
            if not (page.full and adopt(engine, session_id, arrival, page.index, page.content_hash)):
                missing.append(page.index)
            continue
        arrival.pages.pop(page.index, None)  # what lay there is overwritten, whatever comes of this
        engine.write_page(session_id, page.index, page.data, page.content_hash if page.full else None)
        if content_hash(engine.read_back(session_id, page.index)) == page.content_hash:
            arrival.pages[page.index] = page.content_hash
        else:
            missing.append(page.index)
    return missing


def adopt(engine: EnginePort, session_id: str, arrival: Arrival, index: int, page_hash: bytes) -> bool:
    """Shares a full page that is already here under that hash; runs on the engine's thread."""
    if not engine.adopt_page(session_id, index, page_hash):
        return False
    arrival.pages[index] = page_hash
    arrival.adopted.add(index)
    return True


def restore(
    engine: EnginePort, arrival: Arrival, state: SessionState, hashes: list[bytes], num_kv_tokens: int, first_page: int
) -> list[int]:
    """On the engine's thread: takes by name what is still missing, then makes the reservation a held session; `hashes` begin at
    `first_page`.

    Raises:
        EngineError: a page is left out that is needed here.
    """
    needed = page_window(engine.shape, engine.asked.max_batch_tokens, engine.asked.precision.kv_cache).first_page(
        num_kv_tokens
    )
    if first_page > needed:
        raise EngineError(f"expected pages from {needed} on, which a layer here still looks at, found {first_page} on")
    full = num_kv_tokens // PAGE_TOKENS
    bad = []
    for index, page_hash in enumerate(hashes, first_page):
        if arrival.pages.get(index) == page_hash:
            continue
        if index >= full or index in arrival.pages or not adopt(engine, state.session_id, arrival, index, page_hash):
            bad.append(index)
    if not bad:
        engine.restore(state, num_kv_tokens)
    return bad


def open_arrival(reservation: Reservation) -> Arrival:
    """The reservation's content; checked on the engine's thread, so that nothing lands after the reservation was freed there.

    Raises:
        MoveGoneError: it ended meanwhile.
    """
    if not reservation.open:
        raise MoveGoneError(f"move {reservation.migration_id} ended meanwhile")
    arrival: Arrival = reservation.answer
    return arrival
