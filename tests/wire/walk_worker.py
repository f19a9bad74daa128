"""A worker of a random walk: the product's host, ledger and inference service around the engine double, without threads or sockets."""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll_core.words import VerdictKind
from kvroll_worker.move.source.attempt import MovePhase, SourceMove
from kvroll_worker.move.target.arrival import Arrival
from kvroll_worker.move.target.reservations import MoveGoneError
from kvroll_worker.own.held import Held, HeldPhase
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.own.record import record_of
from kvroll_worker.request import NoRoomError, SessionState
from kvroll_worker.serve.inference import InferenceService
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.serve.instance.streams import GatewayStream
from kvroll_worker.serve.metrics import Metrics
from tests.doubles.engine_double import EngineDouble

if TYPE_CHECKING:
    from tests.wire.walk import World

GATEWAY = "g"


class InlineLoop:
    """The engine's thread, without one."""

    def __init__(self, engine: EngineDouble) -> None:
        self._engine = engine
        self.step_seconds = self.longest_step_seconds = self.busy_for_seconds = 0.0

    def post(
        self,
        act: Callable[[Any], Any],
        then: Callable[[Any], None] | None = None,
        fail: Callable[[Exception], None] | None = None,
    ) -> None:
        try:
            result = act(self._engine)
        except Exception as error:
            if fail is None:
                raise
            fail(error)
        else:
            if then is not None:
                then(result)


class WalkHost(WorkerHost):
    """A host whose engine answers at once, whose clock is the walk's and whose aborts travel over the walk's network."""

    def __init__(self, engine: EngineDouble, ref: pb.WorkerRef, world: "World", **ledger: float) -> None:
        super().__init__(engine, ref, "m", Ledger(**ledger), Metrics("m"), _raise)  # type: ignore[arg-type]
        self.loop = InlineLoop(engine)  # type: ignore[assignment]
        self.world = world
        self.peers = _WalkPeers(world)  # type: ignore[assignment]
        self.set_admission(True)

    def now(self) -> float:
        return self.world.now if hasattr(self, "world") else 0.0

    def spawn(self, work: Awaitable[None]) -> None:
        work.close()  # type: ignore[attr-defined]


class _WalkPeers:
    def __init__(self, world: "World") -> None:
        self._world = world

    def abort(self, peer: pb.WorkerRef, migration_id: str, session_id: str, reason: str) -> Awaitable[None]:
        self._world.calls.append(Call("abort", peer.instance_id, None, migration_id, session_id))
        return _nothing()


async def _nothing() -> None:
    """Closed without being awaited."""


def _raise(error: BaseException) -> None:
    raise error


@dataclass(frozen=True)
class Call:
    """A call between workers on its way: prepare, prepared or abort."""

    kind: str
    to: str
    source: "WalkWorker | None"
    migration_id: str
    session_id: str
    move: SourceMove | None = None
    state: SessionState | None = None


class WalkWorker:
    """One instance of one worker; a restart makes another one."""

    def __init__(self, name: str, boot: int, world: "World", engine: EngineDouble, **ledger: float) -> None:
        self.engine = engine
        ref = pb.WorkerRef(worker_id=name, instance_id=f"{name}/{boot}", address=name)
        self.name, self.boot, self.world = name, boot, world
        self.host = WalkHost(engine, ref, world, **ledger)
        self.service = InferenceService(self.host)
        self.stream: GatewayStream | None = None
        self.inbox: deque[ipb.AttachRequest] = deque()
        self.outbox: deque[ipb.AttachResponse] = deque()
        self.alive = True

    @property
    def instance_id(self) -> str:
        return self.host.ref.instance_id

    @property
    def ledger(self) -> Ledger:
        return self.host.ledger

    def collect(self) -> None:
        """Takes what the worker sent into the network."""
        while self.stream is not None and not self.stream._queue.empty():
            message = self.stream._queue.get_nowait()
            if message is not None:
                self.outbox.append(message)

    def step(self) -> None:
        self.host._on_events(self.engine.step())

    def movable(self) -> list[Held]:
        return [h for h in self.ledger.sessions.values() if h.phase is HeldPhase.RUNNING and not h.moving]

    # -- the source's coroutine, cut into its steps

    def start_move(self, held: Held, target: "WalkWorker", migration_id: str, kind: VerdictKind) -> None:
        move = self.ledger.start_move(held, migration_id, target.host.ref, kind)
        self.engine.freeze(held.session_id)
        state = held.record.complete(self.engine.snapshot(held.session_id))
        assert len(state.output_token_ids) == held.log.next_index
        move.freeze(state)
        self.world.calls.append(Call("prepare", target.instance_id, self, migration_id, held.session_id, move, state))

    def prepared(self, call: Call) -> None:
        assert call.move is not None
        if call.move.phase is MovePhase.FROZEN:
            self.host.run(self.ledger.transfer(call.move, self.world.now))

    # -- the target's calls in one

    def prepare(self, call: Call) -> None:
        assert call.state is not None
        assert call.move is not None
        targets, move = self.ledger.targets, call.move
        if targets.find(call.migration_id, call.session_id) is not None or targets.buried(
            call.migration_id, call.session_id
        ):
            known = targets.find(call.migration_id, call.session_id)
            if known is not None and known.digest:
                self._answer(call)
            return
        if self.ledger.may_reserve(call.session_id, move.epoch) is not None:
            return
        reservation, effects = self.ledger.reserve(
            call.migration_id, call.session_id, move.epoch, move.kind, self.world.now
        )
        self.host.run(effects)
        arrival = Arrival(None, call.state)  # type: ignore[arg-type]
        arrival.record = record_of(call.state, move.kind.value, self.engine.descriptor.weights_dtype, "bf16")
        reservation.answer = arrival
        try:
            self._land(call, move)
            generation, next_index = reservation.generation, len(call.state.output_token_ids)
            targets.prepared(
                call.migration_id, call.session_id, generation, b"digest", next_index, move.epoch, self.world.now
            )
        except (NoRoomError, MoveGoneError):
            self.host.run(self.ledger.free_move(call.migration_id, call.session_id))
            return
        self._answer(call)

    def _land(self, call: Call, move: SourceMove) -> None:
        assert call.state is not None
        assert call.source is not None
        if move.kind is VerdictKind.REPLAY:
            self.engine.submit(call.state, hold=True)
            return
        source = call.source.engine
        num_kv = source.num_kv_tokens(call.session_id) if call.session_id in source.sessions() else 0
        num_kv = min(num_kv, call.state.num_tokens - 1)
        self.engine.reserve(call.session_id, max(1, -(-num_kv // 32)))
        for index in range(-(-num_kv // 32)):
            self.engine.write_page(call.session_id, index, source.read_page(call.session_id, index, "bf16"), None)
        self.engine.restore(call.state, num_kv)

    def _answer(self, call: Call) -> None:
        assert call.source is not None
        self.world.calls.append(
            Call("prepared", call.source.instance_id, self, call.migration_id, call.session_id, call.move)
        )


def clean(worker: WalkWorker) -> bool:
    """No copy, no reservation, no page left."""
    free: bool = worker.engine.stats().pages_free == worker.engine.num_pages
    return free and not worker.ledger.sessions and not len(worker.ledger.targets) and not worker.engine.sessions()
