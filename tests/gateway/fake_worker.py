"""A scripted worker behind a real gRPC server."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator

import grpc

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import inference_pb2_grpc as inf_grpc
from kvroll.v1 import ownership_pb2 as own
from kvroll.wire.channels import server_options
from kvroll_core.epoch import Epoch
from tests.gateway.fake_session import (
    ROOM_TOKENS,
    Copy,
    Script,
    frame_of,
    read_epoch,
    record_of,
    stamped,
    transfer_of,
    welcome_of,
    write_epoch,
)


class FakeWorker(inf_grpc.InferenceServiceServicer):
    def __init__(self, worker_id: str, script: Script | None = None) -> None:
        self.worker_id = worker_id
        self.script = script or Script()
        self.port = 0
        self.num_deaths = 0
        self.deaths: list[list[str]] = []  # the sessions that it held at each
        self.restart_seconds = 0.3
        self.received: list[inf.AttachRequest] = []
        self.copies: dict[str, Copy] = {}
        self.prepared: dict[str, tuple[str, Copy]] = {}
        self.fence: dict[str, Epoch] = {}  # the highest epoch seen of each session; lower ones are refused
        self._boot()

    def _boot(self) -> None:
        self.instance_id = f"{self.worker_id}/{uuid.uuid4().hex[:6]}"
        self.copies, self.prepared, self.fence = {}, {}, {}
        self._outbox: asyncio.Queue[inf.AttachResponse | None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ref(self) -> pb.WorkerRef:
        return pb.WorkerRef(worker_id=self.worker_id, instance_id=self.instance_id, address=self.address)

    def got(self, kind: str) -> list[inf.AttachRequest]:
        return [message for message in self.received if message.WhichOneof("message") == kind]

    # --- life and death ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._server = grpc.aio.server(options=server_options())
        inf_grpc.add_InferenceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def die(self) -> None:
        """As SIGKILL: nothing is said, everything is forgotten."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop(None)

    async def _die_and_restart(self) -> None:
        """As a process that its kubelet starts again."""
        await self.die()
        await asyncio.sleep(self.restart_seconds)
        await self.restart()

    async def restart(self) -> None:
        self._boot()
        await self.start()

    def break_stream(self) -> None:
        """The connection breaks: what was queued is lost."""
        if self._outbox is not None:
            while not self._outbox.empty():
                self._outbox.get_nowait()
            self._outbox.put_nowait(None)
            self._outbox = None

    # --- the stream ----------------------------------------------------------------------------------------------

    async def Attach(
        self,
        request_iterator: AsyncIterator[inf.AttachRequest],
        context: grpc.aio.ServicerContext[inf.AttachRequest, inf.AttachResponse],
    ) -> AsyncIterator[inf.AttachResponse]:
        first = await anext(request_iterator)
        assert first.WhichOneof("message") == "hello"
        outbox: asyncio.Queue[inf.AttachResponse | None] = asyncio.Queue()
        copies = list(self.copies.values())
        yield inf.AttachResponse(welcome=welcome_of(self.ref, self.script.admitting, copies, self.script.beat))
        self._outbox = outbox
        reader = self._spawn(self._read(request_iterator, outbox))
        try:
            while (message := await outbox.get()) is not None:
                yield message
        finally:
            reader.cancel()

    async def _read(
        self, requests: AsyncIterator[inf.AttachRequest], outbox: "asyncio.Queue[inf.AttachResponse | None]"
    ) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.CancelledError):
            async for request in requests:
                self.received.append(request)
                getattr(self, "_on_" + str(request.WhichOneof("message")))(request)
        outbox.put_nowait(None)

    def send(self, **message: object) -> None:
        if self._outbox is not None:
            self._outbox.put_nowait(inf.AttachResponse(**message))  # type: ignore[arg-type]

    def set_admitting(self, admitting: bool) -> None:
        self.script.admitting = admitting
        self.send(admission_changed=inf.AdmissionChanged(admitting=admitting))

    # --- what a gateway asks -------------------------------------------------------------------------------------

    def _on_submit(self, request: inf.AttachRequest) -> None:
        submit = request.submit
        prompt = list(submit.token_ids) or [len(word) for word in (submit.text or submit.messages[-1].content).split()]
        state = pb.SessionState(
            session_id=submit.session_id,
            model=submit.model,
            prompt_token_ids=prompt,
            sampling=submit.sampling,
            precision_epochs=[pb.PrecisionEpoch(from_token=0, weights="bf16", kv_cache="bf16", mode="Start")],
        )
        state.sampling.max_tokens = state.sampling.max_tokens or ROOM_TOKENS - len(prompt)
        self._begin(state, read_epoch(submit.epoch))

    def _on_replay(self, request: inf.AttachRequest) -> None:
        state = pb.SessionState()
        state.CopyFrom(request.replay.state)
        state.precision_epochs.add(
            from_token=len(state.output_token_ids), weights="bf16", kv_cache="bf16", mode="Replay"
        )
        self._begin(state, read_epoch(request.replay.epoch))

    def _begin(self, state: pb.SessionState, epoch: Epoch) -> None:
        session_id, script = state.session_id, self.script
        if script.reject is not None or not script.admitting:
            code = script.reject if script.reject is not None else inf.REJECT_CODE_UNAVAILABLE
            self.send(
                rejected=inf.Rejected(
                    session_id=session_id, epoch=write_epoch(epoch), code=code, message="scripted refusal"
                )
            )
            return
        known = self.copies.get(session_id)
        if known is None or known.epoch != epoch:
            if not self._admits(session_id, epoch):
                fenced = inf.Rejected(
                    session_id=session_id, epoch=write_epoch(epoch), code=inf.REJECT_CODE_FENCED, message="fenced"
                )
                self.send(rejected=fenced)
                return
            self.prepared.pop(session_id, None)
            self.copies[session_id] = Copy(state, epoch)
            self._spawn(self._generate(self.copies[session_id]))
        if script.swallow_submitted:
            script.swallow_submitted = False
            self.break_stream()
            return
        self.send(submitted=inf.Submitted(session_id=session_id, epoch=write_epoch(epoch), state=state))

    def _on_ack(self, request: inf.AttachRequest) -> None:
        copy = self._copy_at(request.ack.session_id, request.ack.epoch)
        if copy is not None:
            copy.kept = [frame for frame in copy.kept if frame.index >= request.ack.next_index]
            if copy.finished and not copy.kept:
                del self.copies[request.ack.session_id]

    def _on_resume(self, request: inf.AttachRequest) -> None:
        copy = self._copy_at(request.resume.session_id, request.resume.epoch)
        if copy is not None:
            self._send_frames(copy, [frame for frame in copy.kept if frame.index >= request.resume.next_index])
            if copy.transfer is not None:
                self._ask_transfer(copy)

    def _on_cancel(self, request: inf.AttachRequest) -> None:
        cancel = request.cancel
        copy = self.copies.get(cancel.session_id)
        if copy is not None and copy.epoch <= read_epoch(cancel.epoch):
            del self.copies[cancel.session_id]
        prepared = self.prepared.get(cancel.session_id)
        if prepared is not None and prepared[1].epoch <= read_epoch(cancel.epoch):
            del self.prepared[cancel.session_id]
        self._admits(cancel.session_id, read_epoch(cancel.epoch))
        self.send(cancelled=inf.Cancelled(session_id=cancel.session_id, epoch=cancel.epoch))

    def _on_activate(self, request: inf.AttachRequest) -> None:
        wanted = request.activate
        if self.script.ignore_activate:
            return
        names = {"migration_id": wanted.migration_id, "session_id": wanted.session_id, "epoch": wanted.epoch}
        prepared = self.prepared.get(wanted.session_id)
        running = self._copy_at(wanted.session_id, wanted.epoch)
        if running is None:
            highest = self.fence.get(wanted.session_id)
            fits = prepared is not None and prepared[0] == wanted.migration_id
            if self.script.refuse_activate or not fits or not self._admits(wanted.session_id, read_epoch(wanted.epoch)):
                refused = own.ActivateRefused(**names, reason="scripted refusal")  # type: ignore[arg-type]
                if highest is not None:
                    refused.highest_epoch.CopyFrom(write_epoch(highest))
                self.send(activate_refused=refused)
                return
            copy = self.prepared.pop(wanted.session_id)[1]
            copy.epoch = read_epoch(wanted.epoch)
            self.copies[wanted.session_id] = copy
            self._spawn(self._generate(copy))
        self.send(activated=own.Activated(**names))  # type: ignore[arg-type]

    def _on_transfer_answer(self, request: inf.AttachRequest) -> None:
        answer = request.transfer_answer
        copy = self._copy_at(answer.session_id, answer.epoch)
        if copy is None or copy.transfer is None or copy.transfer.migration_id != answer.migration_id:
            return
        if answer.result in (own.TRANSFER_RESULT_COMMITTED, own.TRANSFER_RESULT_SUPERSEDED):
            del self.copies[answer.session_id]
        elif answer.result == own.TRANSFER_RESULT_RESUME:
            copy.transfer, copy.frozen = None, False
            copy.epoch = read_epoch(answer.resume_epoch)
            self._admits(answer.session_id, copy.epoch)
            self._send_frames(copy, copy.kept)
            self._spawn(self._generate(copy))

    # --- what the test orders ------------------------------------------------------------------------------------

    def move(
        self, session_id: str, target: "FakeWorker", kind: "pb.VerdictKind.ValueType" = pb.VERDICT_KIND_EXACT
    ) -> str:
        """Freezes the session, prepares it at `target`, and asks the gateway to hand it over; returns the migration's id."""
        copy = self.copies[session_id]
        copy.frozen = True
        migration_id = uuid.uuid4().hex
        state = pb.SessionState()
        state.CopyFrom(copy.state)
        target.prepared[session_id] = (migration_id, Copy(state, copy.epoch))
        copy.transfer = own.TransferOwnership(
            migration_id=migration_id,
            session_id=session_id,
            target=target.ref,
            kind=kind,
            next_index=len(copy.state.output_token_ids),
        )
        self._ask_transfer(copy)
        return migration_id

    def _ask_transfer(self, copy: Copy) -> None:
        self.send(transfer_ownership=transfer_of(copy))

    # --- tokens --------------------------------------------------------------------------------------------------

    async def _generate(self, copy: Copy) -> None:
        while self.copies.get(copy.state.session_id) is copy and not copy.frozen and not copy.finished:
            await asyncio.sleep(self.script.token_seconds)
            if self.copies.get(copy.state.session_id) is copy and not copy.frozen:
                self._step(copy)

    def _step(self, copy: Copy) -> None:
        state = copy.state
        index = len(state.output_token_ids)
        if self.script.dies_of in state.prompt_token_ids and index == self.script.dies_at_index:
            self.num_deaths += 1
            self.deaths.append(sorted(self.copies))
            self._dying = asyncio.create_task(self._die_and_restart())
            return
        if index == self.script.fail_at_index:
            del self.copies[state.session_id]
            epoch = write_epoch(copy.epoch)
            failed = inf.SessionFailed(
                session_id=state.session_id, epoch=epoch, code=self.script.fail_code, message="scripted"
            )
            self.send(session_failed=failed)
            return
        frame = frame_of(state)
        if index == self.script.stop_at_index:
            frame.finish_reason = "stop"
            frame.record.CopyFrom(record_of(state))
        copy.finished = frame.finish_reason != ""
        copy.kept.append(frame)
        if index == self.script.swallow_index:
            self.script.swallow_index = None
            return
        self._send_frames(copy, [frame] * (2 if self.script.duplicate_frames else 1))

    def _send_frames(self, copy: Copy, frames: list[pb.Frame]) -> None:
        if frames:
            self.send(frames=inf.FrameBatch(frames=stamped(copy, frames)))

    def _admits(self, session_id: str, epoch: Epoch) -> bool:
        """Promises the epoch; False if this or a higher one was promised before."""
        highest = self.fence.get(session_id)
        self.fence[session_id] = max(epoch, highest or epoch)
        return highest is None or epoch > highest

    def _copy_at(self, session_id: str, epoch: pb.Epoch) -> Copy | None:
        copy = self.copies.get(session_id)
        return copy if copy is not None and copy.epoch == read_epoch(epoch) else None

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
