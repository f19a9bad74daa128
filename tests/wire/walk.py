"""Workers and a gateway without sockets, threads or clocks: the product's own ledgers, inference service and ownership machine, the
engine double, and a network that the test decides over message by message.

Attach streams are in order and lose messages only by breaking; calls between workers may be lost, doubled, late and overtaken.
"""

from collections.abc import Callable
from random import Random

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll_core.words import VerdictKind
from kvroll_gateway.sessions.messages import Send
from kvroll_gateway.sessions.ownership import Ownership
from kvroll_gateway.sessions.phases import TERMINAL, Output, OwnershipPhase
from kvroll_worker.own.held import HeldPhase
from kvroll_worker.serve.instance.streams import GatewayStream
from tests.doubles.engine_double import EngineDouble
from tests.wire.walk_move import Call
from tests.wire.walk_worker import GATEWAY, WalkWorker, clean


class World:
    """Some workers, one gateway, some sessions, and every message between them."""

    def __init__(
        self, names: list[str], make_engine: Callable[[str], EngineDouble], kind: VerdictKind, **ledger: float
    ) -> None:
        self.now = 0.0
        self.calls: list[Call] = []
        self.sessions: dict[str, Ownership] = {}
        self.kind = kind
        self._make_engine, self._ledger = make_engine, ledger
        self._migrations = 0
        self._seen_instances: dict[str, str] = {}
        self.workers = {name: WalkWorker(name, 0, self, make_engine(name), **ledger) for name in names}
        for name in names:
            self.attach(name)

    # -- acts

    def submit(self, session_id: str, on: str, prompt: list[int], max_tokens: int) -> None:
        sampling = pb.Sampling(temperature=1.0, top_p=1.0, max_tokens=max_tokens, ignore_eos=True)
        template = ipb.Submit(session_id=session_id, model="m", token_ids=prompt, sampling=sampling)
        self.sessions[session_id] = Ownership(template, GATEWAY, 1 << 20)
        self._put(self.sessions[session_id], self.sessions[session_id].placed(self.workers[on].instance_id))

    def attach(self, name: str) -> None:
        """The gateway opens a stream to that worker; what was on the way of an older one is lost."""
        worker = self.workers[name]
        worker.inbox.clear()
        worker.outbox.clear()
        if worker.stream is not None:
            worker.host.gateways.detach(worker.stream, self.now)
        before = self._seen_instances.get(name)
        if before is not None and before != worker.instance_id:
            self._lost(before, certain=True)
        self._seen_instances[name] = worker.instance_id
        worker.stream = GatewayStream(GATEWAY)
        worker.host.gateways.attach(worker.stream)
        held = {h.session_id: h for h in worker.service.welcome(GATEWAY).sessions}
        for session_id, session in self.sessions.items():
            self._put(session, session.connected(worker.instance_id, held.get(session_id)))

    def cut(self, name: str) -> None:
        """The stream breaks: what was on the way is lost."""
        worker = self.workers[name]
        worker.collect()
        worker.inbox.clear()
        worker.outbox.clear()
        if worker.stream is not None:
            worker.host.gateways.detach(worker.stream, self.now)
            worker.stream = None

    def crash(self, name: str) -> None:
        """The process ends and another instance begins; calls to the old one reach nobody."""
        self.cut(name)
        old = self.workers[name]
        self.workers[name] = WalkWorker(name, old.boot + 1, self, self._make_engine(name), **self._ledger)

    def suspect(self, name: str) -> None:
        """The gateway takes a worker that it cannot reach for lost."""
        if self.workers[name].stream is None:
            self._lost(self.workers[name].instance_id, certain=False)

    def move(self, name: str, draw: Random) -> None:
        worker = self.workers[name]
        others = [w for w in self.workers.values() if w is not worker]
        movable = worker.movable()
        if movable and others and worker.stream is not None:
            self._migrations += 1
            worker.start_move(draw.choice(movable), draw.choice(others), f"m{self._migrations}", self.kind)

    def abort(self, name: str) -> None:
        """A source gives its frozen moves up, as on a time-out."""
        self.workers[name].abort_moves()

    def step(self, name: str) -> None:
        self.workers[name].step()

    def hear(self, name: str, *, twice: bool = False) -> None:
        """One message of that worker reaches the gateway."""
        worker = self.workers[name]
        worker.collect()
        if worker.stream is None or not worker.outbox:
            return
        message = worker.outbox.popleft()
        for _ in range(2 if twice else 1):
            self._take(worker.instance_id, message)

    def tell(self, name: str, *, twice: bool = False) -> None:
        """One message of the gateway reaches that worker."""
        worker = self.workers[name]
        if worker.stream is None or not worker.inbox:
            return
        message = worker.inbox.popleft()
        for _ in range(2 if twice else 1):
            worker.service.handle(worker.stream, message)

    def call(self, at: int, *, keep: bool = False) -> None:
        """One call between workers arrives; with `keep` it will arrive again."""
        if not self.calls:
            return
        at %= len(self.calls)
        call = self.calls[at] if keep else self.calls.pop(at)
        for worker in self.workers.values():
            if worker.instance_id == call.to:
                worker.arrived(call)

    def lose_call(self, at: int) -> None:
        if self.calls:
            self.calls.pop(at % len(self.calls))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for worker in self.workers.values():
            worker.host.effects.run(worker.ledger.tick(self.now))
        alive = {w.instance_id for w in self.workers.values()}
        for session in self.sessions.values():
            self._put(session, session.repeat())
            # As the table does: a target that went before its move was asked for never answers.
            if session.move is not None and session.move.target not in alive:
                self._put(session, session.lost(session.move.target, certain=True))

    def cancel(self, session_id: str) -> None:
        self._put(self.sessions[session_id], self.sessions[session_id].cancel("the client went"))

    # -- inside

    def _take(self, instance_id: str, message: ipb.AttachResponse) -> None:
        kind = str(message.WhichOneof("message"))
        body = getattr(message, kind)
        if kind == "frames":
            for frame in body.frames:
                session = self.sessions[frame.session_id]
                self._put(session, session.frames(instance_id, [frame]))
        elif kind not in ("welcome", "admission_changed"):
            session = self.sessions[body.session_id]
            handler = "transfer" if kind == "transfer_ownership" else kind
            self._put(session, getattr(session, handler)(instance_id, body))

    def _lost(self, instance_id: str, *, certain: bool) -> None:
        for session in self.sessions.values():
            self._put(session, session.lost(instance_id, certain=certain))

    def _put(self, session: Ownership, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                for worker in self.workers.values():
                    if worker.instance_id == output.instance_id and worker.stream is not None:
                        worker.inbox.append(output.message)
        self.place(session)

    def place(self, session: Ownership) -> None:
        """A session that needs a worker asks one that is attached."""
        if session.phase is not OwnershipPhase.SEEKING:
            return
        attached = [w.instance_id for w in self.workers.values() if w.stream is not None]
        fresh = [i for i in attached if i not in session.excluded]
        if fresh or attached:
            self._put(session, session.placed((fresh or attached)[0]))

    # -- what must hold

    def check(self) -> None:
        """No two copies run at one epoch, the client's tokens are the owner's, and pages balance."""
        for session_id, session in self.sessions.items():
            running = [
                w
                for w in self.workers.values()
                if (h := w.ledger.sessions.get(session_id)) and h.phase is HeldPhase.RUNNING
            ]
            epochs = [w.ledger.sessions[session_id].epoch for w in running]
            assert len(set(epochs)) == len(epochs), f"{session_id}: two copies at one epoch {epochs}"
            delivered = list(session.log.token_ids)
            for worker in running:
                held = worker.ledger.sessions[session_id]
                mine = (
                    session.phase is OwnershipPhase.RUNNING
                    and worker.instance_id == session.owner
                    and held.epoch == session.epoch
                )
                if mine and session_id in worker.engine.sessions():
                    history = worker.engine.snapshot(session_id).output_token_ids
                    assert history[: len(delivered)] == delivered, f"{session_id}: the owner's history is another one"
        for worker in self.workers.values():
            worker.engine.check_integrity()

    def settle(self, rounds: int = 400) -> None:
        """No more faults: everything arrives, time passes, and everything must end."""
        for _ in range(rounds):
            for name, worker in self.workers.items():
                if worker.stream is None:
                    self.attach(name)
                worker.step()
                worker.collect()
                while worker.outbox:
                    self.hear(name)
                    worker.collect()
                while worker.inbox:
                    self.tell(name)
            while self.calls:
                self.call(0)
            for name in self.workers:
                self.abort(name)  # calls that were lost time out
            self.pass_time(0.5)
            self.check()
            if self.settled:
                return
        states = {
            i: (s.phase.value, s.owner, str(s.epoch), s.log.next_index, s.failure) for i, s in self.sessions.items()
        }
        workers = self.workers.values()
        held = {
            w.instance_id: (w.ledger.sessions, w.ledger.targets.open_reservations(), w.engine.sessions())
            for w in workers
        }
        raise AssertionError(f"not over after {rounds} rounds: {states} {held}")

    @property
    def settled(self) -> bool:
        alive = {w.instance_id for w in self.workers.values()}
        # A Cancel to an instance that is gone is repeated until the gateway forgets the session: no copy is left there.
        over = all(s.phase in TERMINAL and not alive & set(s.copies._condemned) for s in self.sessions.values())
        return over and not self.calls and all(clean(w) for w in self.workers.values())
