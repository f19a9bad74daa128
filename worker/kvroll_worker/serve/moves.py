"""SessionService, the door of moves that come here: verdict first, then pages into a reservation, then a copy that only a gateway can
start.
"""

from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
import grpc.aio

from kvroll.v1 import session_pb2 as spb
from kvroll.v1.session_pb2_grpc import SessionServiceServicer
from kvroll_worker.move.codec import (
    offer_answer_to_wire,
    offer_from_wire,
    prepare_answer_to_wire,
    prepare_from_wire,
)
from kvroll_worker.move.messages import OfferAnswer
from kvroll_worker.move.target.receiver import Receiver
from kvroll_worker.move.target.reservations import BadMoveError, MoveGoneError, TargetPhase
from kvroll_worker.request import EngineError, NoRoomError
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.wire.codec import StateFormatError, descriptor_to_wire
from kvroll_worker.wire.intake import BadRequestError

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
    (BadMoveError, grpc.StatusCode.INVALID_ARGUMENT),
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

    async def Offer(self, request: spb.OfferRequest, context: Context) -> spb.OfferResponse:
        mine = self._host.ref.instance_id
        if request.target_instance_id != mine:
            text = f"expected instance {request.target_instance_id}, this is {mine}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        try:
            offer = offer_from_wire(request, self._host.tokenizer, self._host.model)
        except (BadRequestError, StateFormatError) as error:
            return offer_answer_to_wire(OfferAnswer.refused(str(error)))
        return offer_answer_to_wire(await self._receiver.offer(offer))

    async def Push(self, request_iterator: AsyncIterator[spb.PushRequest], context: Context) -> spb.PushResponse:
        try:
            return await self._receiver.push(request_iterator)
        except _KNOWN as error:
            await _abort(context, error)

    async def Prepare(self, request: spb.PrepareRequest, context: Context) -> spb.PrepareResponse:
        try:
            prepare = prepare_from_wire(request, self._host.tokenizer, self._host.model)
            return prepare_answer_to_wire(await self._receiver.prepare(prepare))
        except _KNOWN as error:
            await _abort(context, error)

    async def Abort(self, request: spb.AbortRequest, context: Context) -> spb.AbortResponse:
        self._host.effects.run(self._receiver.end.aborted(request.migration_id, request.session_id))
        return spb.AbortResponse()

    async def QueryMove(self, request: spb.QueryMoveRequest, context: Context) -> spb.QueryMoveResponse:
        targets = self._host.ledger.targets
        known = targets.find(request.migration_id, request.session_id)
        if known is not None:
            return spb.QueryMoveResponse(phase=_PHASES[known.phase])
        buried = targets.buried(request.migration_id, request.session_id)
        return spb.QueryMoveResponse(phase=spb.MOVE_PHASE_ABORTED if buried else spb.MOVE_PHASE_UNSPECIFIED)


async def _abort(context: Context, error: Exception) -> NoReturn:
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    await context.abort(code, str(error))
    raise AssertionError("abort() raises")
