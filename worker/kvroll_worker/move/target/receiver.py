"""Carries the target's steps out: decisions of `end`, work on the engine between two of its steps, answers back to the door."""

import asyncio
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

from kvroll.v1 import session_pb2 as spb
from kvroll_core.words import VerdictKind
from kvroll_worker.move.messages import Offer, OfferAnswer, Prepare, PrepareAnswer
from kvroll_worker.move.port import HostPort
from kvroll_worker.move.target import landing
from kvroll_worker.move.target.end import Complete, TakeIn, TargetEnd
from kvroll_worker.move.target.pages import PageAssembler, WholePage
from kvroll_worker.move.target.reservations import BadMoveError, Reservation
from kvroll_worker.request import EngineError

_LANDING_BYTES = 4 << 20
_POLL_SECONDS = 0.01


class Receiver:
    """The target's end of a worker's moves; offers and prepares of one session follow each other."""

    def __init__(self, host: HostPort) -> None:
        self._host = host
        self.end = TargetEnd(host.ledger, host.descriptor)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # -- Offer

    async def offer(self, offer: Offer) -> OfferAnswer:
        """The answer to an offer, with room kept in the engine unless it is refused."""
        async with self._lock(offer.state.session_id):
            step = self.end.offered(offer, self._host.closed(), self._host.now())
            return step if isinstance(step, OfferAnswer) else await self._take_in(step)

    async def _take_in(self, step: TakeIn) -> OfferAnswer:
        self._host.effects.run(step.effects)
        try:
            arrival = await self._host.call(lambda engine: landing.take_in(engine, step))
        except EngineError as error:
            answer, effects = self.end.no_room(step, str(error))
            self._host.effects.run(effects)
            return answer
        return self.end.taken_in(step, arrival)

    # -- Push

    async def push(self, requests: AsyncIterator[spb.PushRequest]) -> spb.PushResponse:
        """Takes one round, each message renewing the lease; the answer names the pages that are not here after it.

        Raises:
            MoveGoneError: the reservation ended or is another one's.
            BadMoveError: a message that no correct source sends.
            EngineError: the reservation cannot grow.
        """
        assembler: PageAssembler | None = None
        waiting: list[WholePage] = []
        response = spb.PushResponse()
        missing: set[int] = set()
        reservation = None
        async for request in requests:
            reservation = self._receiving(request.migration_id, request.session_id, request.reservation_generation)
            if request.WhichOneof("payload") == "token_ids":
                await self._extend(reservation, request.token_ids)
                continue
            assembler = assembler or self._assembler(reservation)
            page = assembler.add(request.page)
            if page is not None:
                waiting.append(page)
            if sum(len(p.data) for p in waiting) >= _LANDING_BYTES:
                missing |= await self._land(reservation, waiting)
                response.pages_received += len(waiting)
                waiting = []
        if reservation is not None and assembler is not None:
            missing |= await self._land(reservation, waiting) | assembler.bad
            response.pages_received += len(waiting)
            response.bytes_received = assembler.bytes_received
            self._host.count_arrived(assembler.bytes_received, len(assembler.bad))
        response.missing_pages.extend(sorted(missing))
        return response

    def _receiving(self, migration_id: str, session_id: str, generation: int) -> Reservation:
        return self.end.receiving(migration_id, session_id, generation, self._host.now())

    def _assembler(self, reservation: Reservation) -> PageAssembler:
        stats = self._host.stats
        return PageAssembler(stats.page_bytes, reservation.landed.max_pages, stats.open_page_bytes)

    async def _land(self, reservation: Reservation, pages: list[WholePage]) -> set[int]:
        whole = list(pages)
        session_id = reservation.session_id
        return set(await self._host.call(lambda engine: landing.land(engine, session_id, reservation.landed, whole)))

    async def _extend(self, reservation: Reservation, token_ids: spb.TokenIds) -> None:
        """Token ids of a Replay: answered once the target has prefilled them, so that rounds follow the target's pace."""
        have = len(reservation.landed.state.output_token_ids)
        if token_ids.from_index > have:
            raise BadMoveError(f"expected token ids from index {have} or before, found {token_ids.from_index}")
        await self._append(reservation, list(token_ids.ids)[have - token_ids.from_index :])

    async def _append(self, reservation: Reservation, new: list[int]) -> None:
        if new:
            await self._host.call(lambda engine: landing.extend(engine, reservation, new))
        while not await self._host.call(lambda engine: landing.caught_up(engine, reservation)):
            self._receiving(reservation.migration_id, reservation.session_id, reservation.generation)
            await asyncio.sleep(_POLL_SECONDS)

    # -- Prepare

    async def prepare(self, prepare: Prepare) -> PrepareAnswer:
        """Makes the copy complete, or says which pages are not here.

        Raises:
            MoveGoneError: the reservation ended, or a higher epoch is promised.
            BadMoveError: what arrived cannot be this session.
            EngineError: a page is left out that is needed here.
        """
        async with self._lock(prepare.state.session_id):
            step = self.end.preparing(prepare, self._host.now())
            if isinstance(step, PrepareAnswer):
                return step
            return self.end.completed(step, await self._complete(step), self._host.now())

    async def _complete(self, step: Complete) -> list[int]:
        if step.reservation.kind is VerdictKind.REPLAY:
            await self._append(step.reservation, list(step.new_token_ids))
            return []
        return await self._host.call(lambda engine: landing.complete(engine, step))

    def _lock(self, session_id: str) -> asyncio.Lock:
        return self._locks.setdefault(session_id, asyncio.Lock())
