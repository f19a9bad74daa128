"""What the target's steps do on the engine's own thread: find room, land pages and token ids, make the copy a held session.

Each page is verified once more by reading it back; a worker calls these between two steps, a test in place.
"""

from kvroll_core.budget import page_window, pages_for
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.words import VerdictKind
from kvroll_worker.kv.page_hash import content_hash
from kvroll_worker.move.messages import Offer
from kvroll_worker.move.target.end import Complete, TakeIn
from kvroll_worker.move.target.pages import WholePage
from kvroll_worker.move.target.reservations import ArrivedSession, BadMoveError, Reservation
from kvroll_worker.port import EnginePort
from kvroll_worker.request import EngineError, SessionState


def take_in(engine: EnginePort, step: TakeIn) -> ArrivedSession:
    """Finds room for the session: a Replay is submitted to be prefilled ahead and held, pages get a reservation.

    Raises:
        EngineError: no room, or the source leaves out pages that a layer here still looks at.
    """
    arrival = ArrivedSession(step.offer.state)
    if step.reservation.kind is VerdictKind.REPLAY:
        engine.submit(step.offer.state, hold=True)
    else:
        _reserve(engine, step.offer, arrival)
    return arrival


def _reserve(engine: EnginePort, offer: Offer, arrival: ArrivedSession) -> None:
    """Keeps room for the pages that the source holds and the next ones, and takes those of them that are already here."""
    state, first = offer.state, offer.first_page
    window = page_window(engine.shape, engine.asked.max_batch_tokens, engine.asked.precision.kv_cache)
    hashes = offer.page_hashes[: max(state.num_tokens // PAGE_TOKENS - first, 0)]
    needed = window.first_page(state.num_tokens - 1)
    if first > needed:
        raise EngineError(
            f"expected pages from {needed} on (windows of {window.tokens} tokens), offered from {first} on"
        )
    engine.reserve(
        state.session_id, min(pages_for(state.num_tokens), first + window.session_pages(state.num_tokens)), first
    )
    for index, page_hash in enumerate(hashes, first):
        adopt(engine, state.session_id, arrival, index, page_hash)


def extend(engine: EnginePort, reservation: Reservation, token_ids: list[int]) -> None:
    """Gives a Replay's copy more token ids to prefill."""
    if token_ids:
        arrival = reservation.landed
        engine.extend(reservation.session_id, token_ids)
        arrival.state.output_token_ids.extend(token_ids)


def caught_up(engine: EnginePort, reservation: Reservation) -> bool:
    """Whether a Replay's copy has prefilled all that it was given.

    Raises:
        MoveGoneError: the reservation ended meanwhile.
    """
    return engine.is_held_ready(reservation.landed.state.session_id)


def complete(engine: EnginePort, step: Complete) -> list[int]:
    """Makes the pages of the prepared session a held copy; returns those that are not here."""
    prepare = step.prepare
    return restore(
        engine,
        step.reservation.landed,
        step.state,
        list(prepare.page_hashes),
        prepare.num_kv_tokens,
        prepare.first_page,
    )


def land(engine: EnginePort, session_id: str, arrival: ArrivedSession, pages: list[WholePage]) -> list[int]:
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
            raise BadMoveError(f"page {page.index} is shared and cannot become another page")
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


def adopt(engine: EnginePort, session_id: str, arrival: ArrivedSession, index: int, page_hash: bytes) -> bool:
    """Shares a full page that is already here under that hash; runs on the engine's thread."""
    if not engine.adopt_page(session_id, index, page_hash):
        return False
    arrival.pages[index] = page_hash
    arrival.adopted.add(index)
    return True


def restore(
    engine: EnginePort,
    arrival: ArrivedSession,
    state: SessionState,
    hashes: list[bytes],
    num_kv_tokens: int,
    first_page: int,
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
