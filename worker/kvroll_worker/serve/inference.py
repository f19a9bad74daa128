"""InferenceService: one Attach stream a gateway brings requests and takes frames."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import structlog

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll.v1 import ownership_pb2 as opb
from kvroll.v1.inference_pb2_grpc import InferenceServiceServicer
from kvroll_core.epoch import Epoch
from kvroll_worker.move.source.attempt import TransferResult
from kvroll_worker.own.held import Held, HeldPhase
from kvroll_worker.own.ledger import FencedError
from kvroll_worker.own.record import record_of
from kvroll_worker.request import DoesNotFitError, NoRoomError, SessionState
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.serve.instance.streams import GatewayStream
from kvroll_worker.wire.codec import StateFormatError, descriptor_to_wire, epoch_from_wire, epoch_to_wire, state_to_wire
from kvroll_worker.wire.intake import BadRequestError, state_of_replay, state_of_submit

PROTOCOL_VERSION = 1
_log = structlog.get_logger("kvroll.worker.inference")
_ANSWERS = {
    opb.TRANSFER_RESULT_COMMITTED: TransferResult.COMMITTED,
    opb.TRANSFER_RESULT_RESUME: TransferResult.RESUME,
    opb.TRANSFER_RESULT_SUPERSEDED: TransferResult.SUPERSEDED,
    opb.TRANSFER_RESULT_UNKNOWN: TransferResult.UNKNOWN,
}


class InferenceService(InferenceServiceServicer):
    """Attach; every request is handled without waiting, for the engine's queue keeps their order."""

    def __init__(self, host: WorkerHost) -> None:
        self._host = host

    async def Attach(
        self, request_iterator: AsyncIterator[ipb.AttachRequest], context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> AsyncIterator[ipb.AttachResponse]:
        stream = await self._hello(request_iterator, context)
        self._host.gateways.attach(stream)
        stream.send(ipb.AttachResponse(welcome=self.welcome(stream.gateway_id)))
        self._host.tasks.spawn(self._read(stream, request_iterator))
        try:
            while (message := await stream.next()) is not None:
                yield message
        finally:
            self._host.gateways.detach(stream, self._host.now())

    async def _hello(
        self, requests: AsyncIterator[ipb.AttachRequest], context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> GatewayStream:
        first = await anext(aiter(requests), ipb.AttachRequest())
        hello = first.hello
        if first.WhichOneof("message") != "hello" or not hello.gateway_id:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "expected a Hello with a gateway_id as the first message of Attach"
            )
        if hello.protocol_version != PROTOCOL_VERSION:
            text = f"expected protocol version {PROTOCOL_VERSION}, found {hello.protocol_version}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        mine = self._host.ref.instance_id
        if hello.instance_id not in ("", mine):
            text = f"expected instance {hello.instance_id}, this is {mine}: the other one's sessions are gone"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        return GatewayStream(hello.gateway_id)

    def welcome(self, gateway_id: str) -> ipb.Welcome:
        """The first message of a stream: this worker, and what it holds of that gateway's sessions."""
        host = self._host
        held = [h for h in host.ledger.sessions.values() if h.gateway_id == gateway_id]
        return ipb.Welcome(
            worker=host.ref,
            descriptor=descriptor_to_wire(host.descriptor),
            model=host.model,
            admitting=host.admitting,
            sessions=[
                ipb.HeldSession(session_id=h.session_id, epoch=epoch_to_wire(h.epoch), next_index=h.log.next_index) for h in held
            ],
            max_model_len=host.descriptor.max_model_len,
            heartbeat=host.heartbeat(),
        )  # fmt: skip

    async def _read(self, stream: GatewayStream, requests: AsyncIterator[ipb.AttachRequest]) -> None:
        try:
            with contextlib.suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
                async for request in requests:
                    if stream.closed:
                        return
                    try:
                        self.handle(stream, request)
                    except Exception as error:  # the stream carries other sessions too
                        self._mishandled(stream, request, error)
        finally:
            stream.close()

    def _mishandled(self, stream: GatewayStream, request: ipb.AttachRequest, error: Exception) -> None:
        """Ends the session that a message was about, as a failure of it alone; one that would have begun is rejected."""
        kind = request.WhichOneof("message")
        message: Any = getattr(request, str(kind), None)
        session_id = message.state.session_id if kind == "replay" else getattr(message, "session_id", "")
        effects = self._host.events.blame(session_id, error)
        if kind in ("submit", "replay") and not effects:
            text = f"this worker failed to take the session: {type(error).__name__}: {error}"
            self._reject(stream, session_id, message.epoch, ipb.REJECT_CODE_UNAVAILABLE, text)
        self._host.effects.run(effects)

    def handle(self, stream: GatewayStream, request: ipb.AttachRequest) -> None:
        """One message of a gateway, acted on without waiting."""
        host, now = self._host, self._host.now()
        match request.WhichOneof("message"):
            case "submit":
                self._submit(stream, request.submit)
            case "replay":
                self._replay(stream, request.replay)
            case "ack":
                ack = request.ack
                host.effects.run(host.ledger.acknowledge(ack.session_id, epoch_from_wire(ack.epoch), ack.next_index))
            case "resume":
                self._resume(stream, request.resume)
            case "cancel":
                cancel = request.cancel
                host.effects.run(
                    host.ledger.cancel(cancel.session_id, epoch_from_wire(cancel.epoch), stream.gateway_id)
                )
            case "activate":
                self._activate(stream, request.activate, now)
            case "transfer_answer":
                self._answer(stream, request.transfer_answer, now)
            case other:
                _log.warning("a message that this version does not know", message=other, gateway=stream.gateway_id)

    # -- sessions begin

    def _submit(self, stream: GatewayStream, submit: ipb.Submit) -> None:
        epoch = epoch_from_wire(submit.epoch)
        held = self._host.ledger.sessions.get(submit.session_id)
        if self._repeated(stream, held, epoch) or not self._admitting(stream, submit.session_id, submit.epoch):
            return
        try:
            state = state_of_submit(submit, self._host.tokenizer, self._host.model, self._host.room_tokens())
        except BadRequestError as error:
            self._reject(stream, submit.session_id, submit.epoch, ipb.REJECT_CODE_INVALID, str(error))
            return
        self._begin(stream, state, epoch, "Start")

    def _replay(self, stream: GatewayStream, replay: ipb.Replay) -> None:
        session_id, epoch = replay.state.session_id, epoch_from_wire(replay.epoch)
        held = self._host.ledger.sessions.get(session_id)
        if self._repeated(stream, held, epoch) or not self._admitting(stream, session_id, replay.epoch):
            return
        try:
            state = state_of_replay(replay.state, self._host.tokenizer, self._host.model)
        except BadRequestError as error:
            self._reject(stream, session_id, replay.epoch, ipb.REJECT_CODE_INVALID, str(error))
            return
        except StateFormatError as error:
            self._reject(stream, session_id, replay.epoch, ipb.REJECT_CODE_UNAVAILABLE, str(error))
            return
        self._begin(stream, state, epoch, "Replay")

    def _begin(self, stream: GatewayStream, state: SessionState, epoch: Epoch, mode: str) -> None:
        host, descriptor = self._host, self._host.descriptor
        record = record_of(state, mode, descriptor.weights_dtype, descriptor.kv_format, host.now())
        state.precision_epochs = list(record.precision_epochs)
        try:
            held, _, effects = host.ledger.admit(record, epoch, stream.gateway_id, host.now())
        except FencedError as error:
            # The same epoch again means that the copy begun at it is gone: no other owner is known, a new epoch may do.
            higher = not host.ledger.fence.admits(state.session_id, epoch)
            code = ipb.REJECT_CODE_FENCED if higher else ipb.REJECT_CODE_UNAVAILABLE
            self._reject(stream, state.session_id, epoch_to_wire(epoch), code, str(error))
            return
        host.effects.run(effects)
        host.loop.post(
            lambda engine: engine.submit(state),
            lambda _: self._submitted(stream, held),
            lambda error: self._refused(stream, held, error),
        )

    def _submitted(self, stream: GatewayStream, held: Held) -> None:
        if self._host.ledger.admitted(held):
            self._answer_submitted(stream, held)

    def _answer_submitted(self, stream: GatewayStream, held: Held) -> None:
        submitted = ipb.Submitted(
            session_id=held.session_id, epoch=epoch_to_wire(held.epoch), state=state_to_wire(held.record.admitted)
        )
        stream.send(ipb.AttachResponse(submitted=submitted))

    def _refused(self, stream: GatewayStream, held: Held, error: Exception) -> None:
        if isinstance(error, DoesNotFitError):
            code = ipb.REJECT_CODE_INVALID
        elif isinstance(error, NoRoomError):
            code = ipb.REJECT_CODE_UNAVAILABLE
        else:
            code = ipb.REJECT_CODE_UNAVAILABLE
            _log.error(
                "the engine failed to take a session", session=held.session_id, error=f"{type(error).__name__}: {error}"
            )
        self._reject(stream, held.session_id, epoch_to_wire(held.epoch), code, str(error))
        self._host.effects.run(self._host.ledger.failed(held))

    def _repeated(self, stream: GatewayStream, held: Held | None, epoch: Epoch) -> bool:
        if held is None or held.epoch != epoch:
            return False
        if held.phase is not HeldPhase.ADMITTING:  # else its answer is on the way
            self._answer_submitted(stream, held)
        return True

    def _admitting(self, stream: GatewayStream, session_id: str, epoch: pb.Epoch) -> bool:
        closed = self._host.closed()
        if closed is not None:
            self._reject(stream, session_id, epoch, ipb.REJECT_CODE_UNAVAILABLE, closed)
        return closed is None

    def _reject(
        self, stream: GatewayStream, session_id: str, epoch: pb.Epoch, code: "ipb.RejectCode.ValueType", message: str
    ) -> None:
        rejected = ipb.Rejected(session_id=session_id, epoch=epoch, code=code, message=message)
        stream.send(ipb.AttachResponse(rejected=rejected))

    def _resume(self, stream: GatewayStream, resume: ipb.Resume) -> None:
        if resume.session_id in self._host.ledger.sessions:
            self._host.effects.run(
                self._host.ledger.resume(resume.session_id, epoch_from_wire(resume.epoch), resume.next_index)
            )
            return
        self._not_held(stream, resume.session_id, resume.epoch)

    def _not_held(self, stream: GatewayStream, session_id: str, epoch: pb.Epoch) -> None:
        """A lease may have run out while the gateway's message was on its way: if it heard nothing it would wait for ever."""
        text = f"worker {self._host.ref.worker_id} holds no copy of the session"
        gone = ipb.SessionFailed(session_id=session_id, epoch=epoch, code="not_held", message=text)
        stream.send(ipb.AttachResponse(session_failed=gone))

    # -- ownership

    def _activate(self, stream: GatewayStream, activate: opb.Activate, now: float) -> None:
        host = self._host
        epoch = epoch_from_wire(activate.epoch)
        host.effects.run(
            host.ledger.activate(activate.migration_id, activate.session_id, epoch, stream.gateway_id, now)
        )

    def _answer(self, stream: GatewayStream, answer: opb.TransferAnswer, now: float) -> None:
        result = _ANSWERS.get(answer.result)
        if result is None:
            _log.warning("an answer that this version does not know", result=answer.result, session=answer.session_id)
            return
        if result is TransferResult.RESUME and answer.session_id not in self._host.ledger.sessions:
            self._not_held(stream, answer.session_id, answer.resume_epoch)
            return
        resume_epoch = epoch_from_wire(answer.resume_epoch) if answer.HasField("resume_epoch") else None
        epoch = epoch_from_wire(answer.epoch)
        host = self._host
        host.effects.run(host.ledger.answer(answer.migration_id, answer.session_id, epoch, result, resume_epoch, now))
