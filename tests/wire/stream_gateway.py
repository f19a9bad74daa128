"""A gateway without HTTP for tests of moves: the product's own ownership machine, one Attach stream a worker."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll.v1.inference_pb2_grpc import InferenceServiceStub
from kvroll_gateway.sessions.messages import Send
from kvroll_gateway.sessions.ownership import Ownership
from kvroll_gateway.sessions.phases import Note, Output, OwnershipPhase

_REPEAT_SECONDS = 0.2


class StreamGateway:
    """Attaches to workers by address; messages whose kind is in `silenced` are lost."""

    def __init__(self, gateway_id: str = "g1") -> None:
        self.gateway_id = gateway_id
        self.sessions: dict[str, Ownership] = {}
        self.notes: list[Note] = []
        self.welcomes: dict[str, ipb.Welcome] = {}
        self.rejections: list[ipb.Rejected] = []
        self.admission: list[bool] = []
        self.first_frame_at: dict[str, float] = {}
        self.silenced: set[str] = set()  # kinds of messages to workers that are lost
        self._outboxes: dict[str, asyncio.Queue[ipb.AttachRequest]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._repeat_task: asyncio.Task[None] | None = None

    async def attach(self, address: str) -> str:
        """Opens the stream and returns the worker's instance id once it is up."""
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._converse(address, ready))
        instance_id = await asyncio.wait_for(ready, 5.0)
        self._tasks[instance_id] = task
        if self._repeat_task is None:
            self._repeat_task = asyncio.create_task(self._repeat())
        return instance_id

    async def detach(self, instance_id: str) -> None:
        """Breaks the stream as a vanished gateway would."""
        task = self._tasks.pop(instance_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        if self._repeat_task is not None:
            self._repeat_task.cancel()
        for instance_id in list(self._tasks):
            await self.detach(instance_id)

    def submit(
        self, instance_id: str, session_id: str, prompt: list[int], *, model: str = "m", **sampling: object
    ) -> Ownership:
        """Begins a session on that worker."""
        settings = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 64, "ignore_eos": True, **sampling}
        template = ipb.Submit(session_id=session_id, model=model, token_ids=prompt, sampling=pb.Sampling(**settings))  # type: ignore[arg-type]
        session = Ownership(template, self.gateway_id, 1 << 20)
        self.sessions[session_id] = session
        self._put(session.placed(instance_id))
        return session

    def cancel(self, session_id: str) -> None:
        self._put(self.sessions[session_id].cancel("the client went"))

    def lost(self, instance_id: str, replay_on: str | None) -> None:
        """The worker counts as gone: its sessions are replayed on another one."""
        for session in self.sessions.values():
            self._put(session.lost(instance_id, certain=True))
            if session.phase is OwnershipPhase.SEEKING and replay_on is not None:
                self._put(session.placed(replay_on))

    async def until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        """Waits for a condition; fails with the sessions' phases when it does not come."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                phases = {
                    i: (s.phase.value, s.owner, str(s.epoch), s.log.next_index, s.failure)
                    for i, s in self.sessions.items()
                }
                raise AssertionError(f"waited {seconds} s in vain: {phases}")
            await asyncio.sleep(0.005)

    async def finished(self, *session_ids: str, seconds: float = 20.0) -> list[list[int]]:
        """The outputs of these sessions once they are finished."""
        await self.until(lambda: all(self.sessions[i].phase is OwnershipPhase.FINISHED for i in session_ids), seconds)
        return [list(self.sessions[i].log.token_ids) for i in session_ids]

    # -- inside

    async def _converse(self, address: str, ready: "asyncio.Future[str]") -> None:
        async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = InferenceServiceStub(channel).Attach()
            await call.write(ipb.AttachRequest(hello=ipb.Hello(gateway_id=self.gateway_id, protocol_version=1)))
            first = await call.read()
            assert isinstance(first, ipb.AttachResponse)
            instance_id = first.welcome.worker.instance_id
            self.welcomes[instance_id] = first.welcome
            outbox = self._outboxes[instance_id] = asyncio.Queue()
            writer = asyncio.create_task(_write(call, outbox))
            held = {h.session_id: h for h in first.welcome.sessions}
            for session_id, session in self.sessions.items():
                self._put(session.connected(instance_id, held.get(session_id)))
            ready.set_result(instance_id)
            try:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    while isinstance(message := await call.read(), ipb.AttachResponse):
                        self._take(instance_id, message)
            finally:
                writer.cancel()
                if self._outboxes.get(instance_id) is outbox:
                    del self._outboxes[instance_id]

    def _take(self, instance_id: str, message: ipb.AttachResponse) -> None:
        kind = message.WhichOneof("message")
        body = getattr(message, str(kind))
        if kind == "heartbeat":
            return
        if kind == "admission_changed":
            self.admission.append(body.admitting)
        elif kind == "frames":
            for frame in body.frames:
                self.first_frame_at.setdefault(frame.session_id, time.monotonic())
                self._put(self.sessions[frame.session_id].frames(instance_id, [frame]))
        else:
            if kind == "rejected":
                self.rejections.append(body)
            handler = "transfer" if kind == "transfer_ownership" else str(kind)
            self._put(getattr(self.sessions[body.session_id], handler)(instance_id, body))

    def _put(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                outbox = self._outboxes.get(output.instance_id)
                if outbox is not None and output.message.WhichOneof("message") not in self.silenced:
                    outbox.put_nowait(output.message)
            else:
                self.notes.append(output)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(_REPEAT_SECONDS)
            for session in self.sessions.values():
                self._put(session.repeat())


async def _write(call: Any, outbox: "asyncio.Queue[ipb.AttachRequest]") -> None:
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await call.write(await outbox.get())
