"""SessionService: the target's end of moves. Verdict first, then pages into a reservation, then a copy that only a gateway can start."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import grpc
import grpc.aio

from kvroll.v1 import session_pb2 as spb
from kvroll.v1.session_pb2_grpc import SessionServiceServicer
from kvroll_core.budget import page_window, pages_for
from kvroll_core.compat import MovePolicy, Verdict, verdict
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.words import VerdictKind
from kvroll_worker.move.manifest import root_digest
from kvroll_worker.move.target.arrival import (
    Arrival,
    BadPageError,
    adopt,
    open_arrival,
    restore,
)
from kvroll_worker.move.target.receiver import Receiver
from kvroll_worker.move.target.reservations import MoveGoneError, Reservation, TargetPhase
from kvroll_worker.own.record import record_of
from kvroll_worker.port import EnginePort
from kvroll_worker.request import EngineError, NoRoomError, SessionState
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.wire.codec import (
    KIND_FROM_WIRE,
    StateFormatError,
    descriptor_from_wire,
    descriptor_to_wire,
    epoch_from_wire,
    verdict_to_wire,
)
from kvroll_worker.wire.intake import BadRequestError, state_of_replay

_PHASES = {
    TargetPhase.RESERVED: spb.MOVE_PHASE_RESERVED,
    TargetPhase.RECEIVING: spb.MOVE_PHASE_RESERVED,
    TargetPhase.PREPARED: spb.MOVE_PHASE_PREPARED,
    TargetPhase.ACTIVE: spb.MOVE_PHASE_ACTIVE,
    TargetPhase.FREED: spb.MOVE_PHASE_ABORTED,
}
_CODES: list[tuple[type[Exception], grpc.StatusCode]] = [
    (MoveGoneError, grpc.StatusCode.FAILED_PRECONDITION),
    (NoRoomError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (BadRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (BadPageError, grpc.StatusCode.INVALID_ARGUMENT),
    (StateFormatError, grpc.StatusCode.FAILED_PRECONDITION),
    (EngineError, grpc.StatusCode.FAILED_PRECONDITION),
]
_KNOWN = tuple(kind for kind, _ in _CODES)
Context = grpc.aio.ServicerContext[Any, Any]


class SessionService(SessionServiceServicer):
    """Idempotent by (migration, session); calls for one session follow each other."""

    def __init__(self, host: WorkerHost) -> None:
        self._host = host
        self._receiver = Receiver(host)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def GetCapabilities(
        self, request: spb.GetCapabilitiesRequest, context: Context
    ) -> spb.GetCapabilitiesResponse:
        host = self._host
        return spb.GetCapabilitiesResponse(
            worker=host.ref,
            descriptor=descriptor_to_wire(host.descriptor),
            free_pages=host.stats.pages_free,
            page_bytes=host.stats.page_bytes,
            accepting_moves=host.admitting and not host.sealed,
        )

    # -- Offer

    async def Offer(self, request: spb.OfferRequest, context: Context) -> spb.OfferResponse:
        mine = self._host.ref.instance_id
        if request.target_instance_id != mine:
            text = f"expected instance {request.target_instance_id}, this is {mine}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        async with self._lock(request.state.session_id):
            targets = self._host.ledger.targets
            known = targets.find(request.migration_id, request.state.session_id)
            if known is not None and known.open and known.answer is not None:
                response: spb.OfferResponse = known.answer.response
                return response
            if known is not None or targets.buried(request.migration_id, request.state.session_id):
                return _refused("this migration ended here; offer again with a new migration id")
            return await self._offer(request)

    async def _offer(self, request: spb.OfferRequest) -> spb.OfferResponse:
        host = self._host
        if not host.admitting or host.sealed:
            return _refused(f"worker {host.ref.worker_id} is {'sealed' if host.sealed else 'not admitting'}")
        try:
            state = state_of_replay(request.state, host.tokenizer, host.model)
        except (BadRequestError, StateFormatError) as error:
            return _refused(str(error))
        decided = self._verdict(request, state)
        if decided.kind is VerdictKind.REFUSE:
            return spb.OfferResponse(verdict=verdict_to_wire(decided))
        epoch = epoch_from_wire(request.epoch)
        why_not = host.ledger.may_reserve(state.session_id, epoch)
        if why_not is not None:
            return _refused(why_not)
        reservation, effects = host.ledger.reserve(
            request.migration_id, state.session_id, epoch, decided.kind, host.now()
        )
        host.run(effects)
        return await self._fill(reservation, request, state, decided)

    async def _fill(
        self, reservation: Reservation, request: spb.OfferRequest, state: SessionState, decided: Verdict
    ) -> spb.OfferResponse:  # fmt: skip
        host = self._host
        response = spb.OfferResponse(
            verdict=verdict_to_wire(decided),
            reservation_generation=reservation.generation,
            lease_seconds=host.ledger.targets.lease_seconds,
            wire_kv_format=host.descriptor.kv_form,
        )
        arrival = Arrival(response, state)

        def take(engine: EnginePort) -> None:
            if decided.kind is VerdictKind.REPLAY:
                engine.submit(state, hold=True)
            else:
                response.have_pages.extend(_reserve(engine, request, state, arrival))

        try:
            await host.call(take)
        except EngineError as error:
            host.run(host.ledger.free_move(reservation.migration_id, reservation.session_id))
            return _refused(f"no room: {error}")
        if not reservation.open:
            return _refused("aborted meanwhile")
        reservation.answer = arrival
        return response

    def _verdict(self, request: spb.OfferRequest, state: SessionState) -> Verdict:
        policy = MovePolicy(
            allowed=frozenset(KIND_FROM_WIRE[kind] for kind in request.allowed if kind in KIND_FROM_WIRE),
            kv_across_weights=request.kv_across_weights,
            reproducible=state.sampling.reproducible,
            total_tokens=len(state.prompt_token_ids) + state.sampling.max_tokens,
        )
        return verdict(descriptor_from_wire(request.descriptor), self._host.descriptor, policy)

    # -- Push

    async def Push(self, request_iterator: AsyncIterator[spb.PushRequest], context: Context) -> spb.PushResponse:
        try:
            return await self._receiver.push(request_iterator)
        except _KNOWN as error:
            await _abort(context, error)

    # -- Prepare, Abort, QueryMove

    async def Prepare(self, request: spb.PrepareRequest, context: Context) -> spb.PrepareResponse:
        try:
            async with self._lock(request.state.session_id):
                return await self._prepare(request)
        except _KNOWN as error:
            await _abort(context, error)

    async def _prepare(self, request: spb.PrepareRequest) -> spb.PrepareResponse:
        targets, session_id = self._host.ledger.targets, request.state.session_id
        hashes = list(request.page_hashes)
        digest = root_digest(request.state, hashes, request.num_kv_tokens, request.first_page)
        if digest != request.root_digest:
            raise BadRequestError(
                "the root digest does not match the state and the page hashes: they were damaged on the way"
            )
        known = targets.find(request.migration_id, session_id)
        if known is not None and known.phase in (TargetPhase.PREPARED, TargetPhase.ACTIVE) and known.digest == digest:
            return spb.PrepareResponse(root_digest=digest)
        reservation = self._receiver.receiving(request.migration_id, session_id, request.reservation_generation)
        state = state_of_replay(request.state, self._host.tokenizer, self._host.model)
        epoch = epoch_from_wire(request.epoch)
        if not self._host.ledger.fence.admits(session_id, epoch):
            raise MoveGoneError(f"epoch {epoch} is below the promised {self._host.ledger.fence.highest(session_id)}")
        bad = await self._complete(reservation, state, hashes, request.num_kv_tokens, request.first_page)
        if bad:
            return spb.PrepareResponse(bad_pages=bad)
        next_index, generation = len(state.output_token_ids), request.reservation_generation
        targets.prepared(request.migration_id, session_id, generation, digest, next_index, epoch, self._host.now())
        return spb.PrepareResponse(root_digest=digest)

    async def _complete(
        self, reservation: Reservation, state: SessionState, hashes: list[bytes], num_kv_tokens: int, first_page: int
    ) -> list[int]:
        """Makes the copy complete, or says which pages are not here."""
        arrival: Arrival = reservation.answer
        descriptor = self._host.descriptor
        record = record_of(state, reservation.kind.value, descriptor.weights_dtype, descriptor.kv_format)
        state.precision_epochs = list(record.precision_epochs)
        state.kv_converted = state.kv_converted or reservation.kind is VerdictKind.CONVERT
        if reservation.kind is VerdictKind.REPLAY:
            have = arrival.state.output_token_ids
            if state.output_token_ids[: len(have)] != have:
                raise BadRequestError("the final token ids do not begin with those pushed before")
            await self._receiver.append(reservation, state.output_token_ids[len(have) :])
            await self._receiver.caught_up(reservation)
            bad: list[int] = []
        else:
            if num_kv_tokens >= state.num_tokens or first_page + len(hashes) != pages_for(num_kv_tokens):
                found = f"{len(hashes)} pages from page {first_page} on"
                raise BadRequestError(f"{found} cannot cover {num_kv_tokens} of {state.num_tokens} tokens")
            bad = await self._host.call(
                lambda engine: restore(engine, open_arrival(reservation), state, hashes, num_kv_tokens, first_page)
            )
        arrival.record = record
        return bad

    async def Abort(self, request: spb.AbortRequest, context: Context) -> spb.AbortResponse:
        self._host.run(self._host.ledger.free_move(request.migration_id, request.session_id))
        return spb.AbortResponse()

    async def QueryMove(self, request: spb.QueryMoveRequest, context: Context) -> spb.QueryMoveResponse:
        targets = self._host.ledger.targets
        known = targets.find(request.migration_id, request.session_id)
        if known is not None:
            return spb.QueryMoveResponse(phase=_PHASES[known.phase])
        buried = targets.buried(request.migration_id, request.session_id)
        return spb.QueryMoveResponse(phase=spb.MOVE_PHASE_ABORTED if buried else spb.MOVE_PHASE_UNSPECIFIED)

    def _lock(self, session_id: str) -> asyncio.Lock:
        return self._locks.setdefault(session_id, asyncio.Lock())


def _reserve(engine: EnginePort, request: spb.OfferRequest, state: SessionState, arrival: Arrival) -> list[int]:
    """Keeps room for the pages that the source holds and the next ones; returns those of them that are already here.

    Raises:
        EngineError: no room, or the source leaves out pages that a layer here still looks at.
    """
    first, window = (
        request.first_page,
        page_window(engine.shape, engine.asked.max_batch_tokens, engine.asked.precision.kv_cache),
    )
    hashes = list(request.page_hashes)[: max(state.num_tokens // PAGE_TOKENS - first, 0)]
    needed = window.first_page(state.num_tokens - 1)
    if first > needed:
        raise EngineError(
            f"expected pages from {needed} on (windows of {window.tokens} tokens), offered from {first} on"
        )
    engine.reserve(
        state.session_id, min(pages_for(state.num_tokens), first + window.session_pages(state.num_tokens)), first
    )
    held = enumerate(hashes, first)
    return [index for index, h in held if adopt(engine, state.session_id, arrival, index, h)]


def _refused(reason: str) -> spb.OfferResponse:
    return spb.OfferResponse(verdict=verdict_to_wire(Verdict(VerdictKind.REFUSE, (reason,), "none")))


async def _abort(context: Context, error: Exception) -> NoReturn:
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    await context.abort(code, str(error))
    raise AssertionError("abort() raises")
