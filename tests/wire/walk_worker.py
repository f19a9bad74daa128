"""A worker of a random walk: the product's host, ledger, inference service and both ends of moves around the engine double, without
threads or sockets.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.message import Message

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll.v1 import session_pb2 as spb
from kvroll_core.words import VerdictKind
from kvroll_worker.move import codec
from kvroll_worker.move.messages import OfferAnswer, Peer, PrepareAnswer
from kvroll_worker.move.peers import Peers
from kvroll_worker.move.target import landing
from kvroll_worker.move.target.end import Complete, TakeIn, TargetEnd
from kvroll_worker.move.target.pages import PageAssembler
from kvroll_worker.move.target.reservations import BadMoveError, MoveGoneError, Reservation
from kvroll_worker.own.held import Held, HeldPhase
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.port import EnginePort
from kvroll_worker.request import EngineError
from kvroll_worker.serve.inference import InferenceService
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.serve.instance.loop import EngineLoop, Event
from kvroll_worker.serve.instance.streams import GatewayStream
from kvroll_worker.serve.instance.tasks import BackgroundTasks
from kvroll_worker.serve.metrics import Metrics
from kvroll_worker.wire.intake import BadRequestError
from tests.doubles.engine_double import EngineDouble
from tests.wire.walk_move import Call, Push, Refused, WalkMove

if TYPE_CHECKING:
    from tests.wire.walk import World

GATEWAY = "g"
_REFUSALS = (MoveGoneError, BadMoveError, BadRequestError, EngineError)


class InlineLoop(EngineLoop):
    """The engine's thread, without one."""

    def __init__(
        self,
        engine: EnginePort,
        on_events: Callable[[Sequence[Event]], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        super().__init__(engine, on_events, on_crash)
        self._inline = engine

    def post(
        self,
        act: Callable[[Any], Any],
        then: Callable[[Any], None] | None = None,
        fail: Callable[[Exception], None] | None = None,
    ) -> None:
        try:
            result = act(self._inline)
        except Exception as error:
            if fail is None:
                raise
            fail(error)
        else:
            if then is not None:
                then(result)


class _ClosedTasks(BackgroundTasks):
    """What a host would run beside is the walk's to decide."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()


def walk_host(engine: EngineDouble, ref: pb.WorkerRef, world: "World", **ledger: float) -> WorkerHost:
    """A host whose engine answers at once, whose clock is the walk's and whose aborts travel over the walk's network."""
    host = WorkerHost(
        cast(EnginePort, engine),
        ref,
        "m",
        Ledger(**ledger),  # type: ignore[arg-type]
        Metrics("m"),
        _raise,
        make_loop=InlineLoop,
        peers=_WalkPeers(world),
        tasks=_ClosedTasks(),
        clock=lambda: world.now,
    )
    host.set_admission(True)
    return host


class _WalkPeers(Peers):
    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world

    def abort(self, peer: Peer, migration_id: str, session_id: str, reason: str) -> Coroutine[Any, Any, None]:
        abort = spb.AbortRequest(migration_id=migration_id, session_id=session_id, reason=reason)
        self._world.calls.append(Call(peer.instance_id, migration_id, abort))
        return _nothing()


async def _nothing() -> None:
    """Closed without being awaited."""


def _raise(error: BaseException) -> None:
    raise error


class WalkWorker:
    """One instance of one worker; a restart makes another one."""

    def __init__(self, name: str, boot: int, world: "World", engine: EngineDouble, **ledger: float) -> None:
        self.engine = engine
        self.port = cast(EnginePort, engine)
        ref = pb.WorkerRef(worker_id=name, instance_id=f"{name}/{boot}", address=name)
        self.name, self.boot, self.world = name, boot, world
        self.host = walk_host(engine, ref, world, **ledger)
        self.service = InferenceService(self.host)
        self.target = TargetEnd(self.host.ledger, engine.descriptor)
        self.moves: dict[str, WalkMove] = {}
        self.waiting: list[tuple[Call, Reservation, Complete | None]] = []  # for a Replay's copy to be prefilled
        self.stream: GatewayStream | None = None
        self.inbox: deque[ipb.AttachRequest] = deque()
        self.outbox: deque[ipb.AttachResponse] = deque()

    @property
    def instance_id(self) -> str:
        return self.host.ref.instance_id

    @property
    def ledger(self) -> Ledger:
        return self.host.ledger

    def collect(self) -> None:
        """Takes what the worker sent into the network."""
        while self.stream is not None and not self.stream.empty:
            message = self.stream.next_now()
            if message is not None:
                self.outbox.append(message)

    def step(self) -> None:
        self.host.effects.run(self.host.events.taken(self.engine.step()))
        waiting, self.waiting = self.waiting, []
        for call, reservation, complete in waiting:
            self._answering(call, lambda call=call, r=reservation, c=complete: self._caught_up(call, r, c))  # type: ignore[misc]

    def movable(self) -> list[Held]:
        return [h for h in self.ledger.sessions.values() if h.phase is HeldPhase.RUNNING and not h.moving]

    def start_move(self, held: Held, target: "WalkWorker", migration_id: str, kind: VerdictKind) -> None:
        self.moves[migration_id] = WalkMove(self, held, target, migration_id, kind)

    def abort_moves(self) -> None:
        """Gives its moves up, as on a time-out."""
        for move in self.moves.values():
            if not move.end.move.ended:
                move.give_up("timed out")

    # -- what other workers send

    def arrived(self, call: Call) -> None:
        match call.content:
            case spb.AbortRequest() as abort:
                self.host.effects.run(self.target.aborted(abort.migration_id, abort.session_id))
            case spb.OfferRequest() | Push() | spb.PrepareRequest():
                self._answering(call, lambda: self._serve(call))
            case answer:
                if call.migration_id in self.moves:
                    self.moves[call.migration_id].heard(call.serial, answer)

    def _answering(self, call: Call, serve: Callable[[], Message | None]) -> None:
        try:
            answer: Message | Refused | None = serve()
        except _REFUSALS as error:
            answer = Refused(str(error))
        if answer is not None:
            self.world.calls.append(Call(call.sender, call.migration_id, answer, self.instance_id, call.serial))

    def _serve(self, call: Call) -> Message | None:
        match call.content:
            case spb.OfferRequest() as message:
                return codec.offer_answer_to_wire(self._offer(message))
            case Push(requests):
                return self._push(call, requests)
            case spb.PrepareRequest() as message:
                return self._prepare(call, message)
        raise AssertionError(call)

    def _offer(self, message: spb.OfferRequest) -> OfferAnswer:
        try:
            offer = codec.offer_from_wire(message, self.engine.tokenizer, "m")
        except BadRequestError as error:
            return OfferAnswer.refused(str(error))
        step = self.target.offered(offer, self.host.closed(), self.world.now)
        return self._take_in(step) if isinstance(step, TakeIn) else step

    def _take_in(self, step: TakeIn) -> OfferAnswer:
        self.host.effects.run(step.effects)
        try:
            arrival = landing.take_in(self.port, step)
        except EngineError as error:
            answer, effects = self.target.no_room(step, str(error))
            self.host.effects.run(effects)
            return answer
        return self.target.taken_in(step, arrival)

    def _push(self, call: Call, requests: tuple[spb.PushRequest, ...]) -> Message | None:
        whole, assembler, reservation = [], None, None
        for request in requests:
            reservation = self.target.receiving(
                request.migration_id, request.session_id, request.reservation_generation, self.world.now
            )
            if request.WhichOneof("payload") == "token_ids":
                have = len(reservation.landed.state.output_token_ids)
                landing.extend(self.port, reservation, list(request.token_ids.ids)[have:])
                self.waiting.append((call, reservation, None))
                return None
            assembler = assembler or PageAssembler(self.engine.page_bytes, reservation.landed.max_pages)
            page = assembler.add(request.page)
            if page is not None:
                whole.append(page)
        if reservation is None:
            return spb.PushResponse()
        missing = landing.land(self.port, reservation.session_id, reservation.landed, whole)
        return spb.PushResponse(missing_pages=missing)

    def _prepare(self, call: Call, message: spb.PrepareRequest) -> Message | None:
        step = self.target.preparing(codec.prepare_from_wire(message, self.engine.tokenizer, "m"), self.world.now)
        if isinstance(step, PrepareAnswer):
            return codec.prepare_answer_to_wire(step)
        if step.reservation.kind is VerdictKind.REPLAY:
            landing.extend(self.port, step.reservation, list(step.new_token_ids))
            self.waiting.append((call, step.reservation, step))
            return None
        bad = landing.complete(self.port, step)
        return codec.prepare_answer_to_wire(self.target.completed(step, bad, self.world.now))

    def _caught_up(self, call: Call, reservation: Reservation, complete: Complete | None) -> Message | None:
        if not landing.caught_up(self.port, reservation):
            self.waiting.append((call, reservation, complete))
            return None
        if complete is None:
            return spb.PushResponse()
        return codec.prepare_answer_to_wire(self.target.completed(complete, [], self.world.now))


def clean(worker: WalkWorker) -> bool:
    """No copy, no reservation, no page left."""
    free: bool = worker.engine.stats().pages_free == worker.engine.num_pages
    return free and not worker.ledger.sessions and not len(worker.ledger.targets) and not worker.engine.sessions()
