"""The receiving half of a move: pages and token ids on their way into a reservation, each renewing its lease."""

import asyncio
from collections.abc import AsyncIterator

from kvroll.v1 import session_pb2 as spb
from kvroll_worker.move.port import HostPort
from kvroll_worker.move.target.arrival import PageAssembler, WholePage, land, open_arrival
from kvroll_worker.move.target.reservations import MoveGoneError, Reservation
from kvroll_worker.port import EnginePort
from kvroll_worker.wire.intake import BadRequestError

_LANDING_BYTES = 4 << 20
_POLL_SECONDS = 0.01


class Receiver:
    """Carries Push rounds to the engine."""

    def __init__(self, host: HostPort) -> None:
        self._host = host

    def receiving(self, migration_id: str, session_id: str, generation: int) -> Reservation:
        reservation = self._host.ledger.targets.receiving(migration_id, session_id, generation, self._host.now())
        if reservation.answer is None:
            raise MoveGoneError(f"move {migration_id}: its Offer is not answered yet")
        return reservation

    async def push(self, requests: AsyncIterator[spb.PushRequest]) -> spb.PushResponse:
        """Takes one round; the answer names the pages that are not here after it."""
        assembler: PageAssembler | None = None
        waiting: list[WholePage] = []
        response = spb.PushResponse()
        missing: set[int] = set()
        reservation = None
        async for request in requests:
            reservation = self.receiving(request.migration_id, request.session_id, request.reservation_generation)
            if request.WhichOneof("payload") == "token_ids":
                await self._extend(reservation, request.token_ids)
                continue
            assembler = assembler or PageAssembler(
                self._host.stats.page_bytes, reservation.answer.max_pages, self._host.stats.open_page_bytes
            )
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

    async def _land(self, reservation: Reservation, pages: list[WholePage]) -> set[int]:
        landing = list(pages)
        missing = await self._host.call(
            lambda engine: land(engine, reservation.session_id, open_arrival(reservation), landing)
        )
        return set(missing)

    async def _extend(self, reservation: Reservation, token_ids: spb.TokenIds) -> None:
        """Token ids of a Replay: answered once the target has prefilled them, so that rounds follow the target's pace."""
        ids: list[int] = reservation.answer.state.output_token_ids
        if token_ids.from_index > len(ids):
            raise BadRequestError(f"expected token ids from index {len(ids)} or before, found {token_ids.from_index}")
        await self.append(reservation, list(token_ids.ids)[len(ids) - token_ids.from_index :])
        await self.caught_up(reservation)

    async def append(self, reservation: Reservation, new: list[int]) -> None:
        def extend(engine: EnginePort) -> None:
            engine.extend(reservation.session_id, new)
            open_arrival(reservation).state.output_token_ids.extend(new)

        if new:
            await self._host.call(extend)

    async def caught_up(self, reservation: Reservation) -> None:
        targets = self._host.ledger.targets
        while not await self._host.call(
            lambda engine: open_arrival(reservation) and engine.is_held_ready(reservation.session_id)
        ):
            targets.receiving(
                reservation.migration_id, reservation.session_id, reservation.generation, self._host.now()
            )
            await asyncio.sleep(_POLL_SECONDS)
