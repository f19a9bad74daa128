"""The ownership machine against every order of messages that hypothesis finds.

Streams break, messages repeat, workers die or are only suspected. The client gets each index once, in order, with the right ids; no worker
runs above its gateway's record; at the end nothing is left over.
"""

import os
from collections import deque

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvroll.v1 import inference_pb2 as inf
from kvroll_gateway.sessions.messages import Send
from kvroll_gateway.sessions.ownership import Ownership
from kvroll_gateway.sessions.phases import TERMINAL, Output, OwnershipPhase
from tests.gateway.fake_session import MODEL, expected_ids, held_of
from tests.gateway.fake_worker import FakeWorker

PROMPT = [3, 1, 4]
TOKENS = 12
SESSION = "s"


class ModelWorker(FakeWorker):
    """The scripted worker without a clock or a socket: `outgoing` and `incoming` are the two halves of its stream."""

    def __init__(self, worker_id: str) -> None:
        self.outgoing: deque[inf.AttachResponse] = deque()
        self.incoming: deque[inf.AttachRequest] = deque()
        self.connected = True
        super().__init__(worker_id)

    def send(self, **message: object) -> None:
        if self.connected:
            self.outgoing.append(inf.AttachResponse(**message))  # type: ignore[arg-type]

    def _spawn(self, work):  # type: ignore[no-untyped-def]
        work.close()  # the test steps the copies itself

    def break_stream(self) -> None:
        self.connected = False
        self.outgoing.clear()
        self.incoming.clear()

    def take(self, request: inf.AttachRequest) -> None:
        getattr(self, "_on_" + str(request.WhichOneof("message")))(request)

    def step(self) -> None:
        copy = self.copies.get(SESSION)
        if copy is not None and not copy.frozen and not copy.finished:
            self._step(copy)

    def repeat(self) -> None:
        copy = self.copies.get(SESSION)
        if copy is not None and copy.transfer is not None:
            self._ask_transfer(copy)


class Orders(RuleBasedStateMachine):
    @initialize(workers=st.sampled_from([2, 2, 3]))
    def begin(self, workers: int) -> None:
        self.workers = [ModelWorker(f"w{number}") for number in range(workers)]
        self.machine = Ownership(inf.Submit(session_id=SESSION, model=MODEL, token_ids=PROMPT), "gw", 1000)
        self.machine.template.sampling.max_tokens = TOKENS
        self.client: list[int] = []
        self.place(self.workers[0])
        self.deliver(self.workers[0], down=9, up=9)

    # --- how things happen ---------------------------------------------------------------------------------------

    def out(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                for worker in self.workers:
                    if worker.instance_id == output.instance_id and worker.connected:
                        worker.incoming.append(output.message)
        for frame in self.machine.log.take():
            assert frame.index == len(self.client)
            self.client.append(frame.token_id)

    def receive(self, worker: ModelWorker, message: inf.AttachResponse) -> None:
        which = str(message.WhichOneof("message"))
        body = getattr(message, which)
        machine = self.machine
        if which == "frames":
            self.out(machine.frames(worker.instance_id, body.frames))
        else:
            inputs = {"transfer_ownership": machine.transfer}
            self.out((inputs.get(which) or getattr(machine, which))(worker.instance_id, body))

    def reconnect(self, worker: ModelWorker) -> None:
        worker.connected = True
        copy = worker.copies.get(SESSION)
        self.out(self.machine.connected(worker.instance_id, held_of(copy) if copy is not None else None))

    def place(self, worker: ModelWorker) -> None:
        if self.machine.phase is OwnershipPhase.SEEKING and worker.connected:
            self.out(self.machine.placed(worker.instance_id))

    def deliver(self, worker: ModelWorker, down: int, up: int) -> None:
        """At most so many messages each way."""
        for _ in range(min(down, len(worker.incoming))):
            worker.take(worker.incoming.popleft())
        for _ in range(min(up, len(worker.outgoing))):
            self.receive(worker, worker.outgoing.popleft())

    def miss_target(self) -> None:
        """The table's watch: a target that no worker is any more never answers."""
        known = {worker.instance_id for worker in self.workers}
        if self.machine.move is not None and self.machine.move.target not in known:
            self.out(self.machine.lost(self.machine.move.target, certain=False))

    def pick(self, number: int) -> ModelWorker:
        return self.workers[number % len(self.workers)]

    # --- what may happen: messages and tokens are three rules, all faults are one, so that long straight stretches happen too -----------

    some = st.integers(0, 5)

    @rule(number=some, down=st.integers(0, 3), up=st.integers(0, 3))
    def messages_arrive(self, number: int, down: int, up: int) -> None:
        self.place(self.pick(number))
        self.deliver(self.pick(number), down, up)

    @rule(number=some, count=st.integers(1, 3))
    def tokens(self, number: int, count: int) -> None:
        for _ in range(count):
            self.pick(number).step()

    @rule(number=some)
    def move(self, number: int) -> None:
        sources = [worker for worker in self.workers if SESSION in worker.copies]
        there = self.pick(number)
        if not sources or sources[0] is there or SESSION in there.copies or SESSION in there.prepared:
            return
        copy = sources[0].copies[SESSION]
        if not copy.frozen and not copy.finished:
            sources[0].move(SESSION, there)

    @rule(
        number=some,
        what=st.sampled_from(["expires", "breaks", "comes back", "suspected", "restarts", "repeats", "timer", "again"]),
    )
    def fault(self, number: int, what: str) -> None:
        worker = self.pick(number)
        if what == "expires":
            worker.prepared.pop(SESSION, None)
        elif what == "breaks":
            worker.break_stream()
        elif what == "comes back" and not worker.connected:
            self.reconnect(worker)
        elif what == "suspected" and not worker.connected:
            self.out(self.machine.lost(worker.instance_id, certain=False))
        elif what == "restarts":
            self.restart(worker)
        elif what == "repeats":
            worker.repeat()
        elif what == "timer":
            self.miss_target()
            self.out(self.machine.repeat())
        elif what == "again":
            self.say_again(worker)

    def restart(self, worker: ModelWorker) -> None:
        """The process dies and another takes its place, under another instance id."""
        before = worker.instance_id
        worker.break_stream()
        worker._boot()
        self.out(self.machine.lost(before, certain=True))

    def say_again(self, worker: ModelWorker) -> None:
        """The next message of each direction is heard twice."""
        if worker.outgoing:
            self.receive(worker, worker.outgoing[0])
        if worker.incoming:
            worker.take(worker.incoming[0])

    @precondition(lambda self: len(self.client) > 2)
    @rule(really=st.sampled_from([False] * 9 + [True]))
    def client_goes(self, really: bool) -> None:
        if really:
            self.out(self.machine.cancel("client disconnected"))

    # --- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def client_sees_the_right_tokens(self) -> None:
        assert self.client == expected_ids(PROMPT, len(self.client))

    @invariant()
    def nobody_outranks_the_record(self) -> None:
        machine = self.machine
        allowed = {machine.epoch}
        if machine.move is not None:
            allowed.add(machine.move.epoch)
        if machine.attempt is not None:
            allowed.add(machine.attempt.epoch)
        # What was begun and given up half-way may run above the record until its replacement took and it is cancelled.
        allowed |= set(machine.copies.kept.values())
        for worker in self.workers:
            copy = worker.copies.get(SESSION)
            if copy is not None and not copy.frozen and machine.phase not in TERMINAL:
                assert copy.epoch <= machine.epoch or copy.epoch in allowed

    def teardown(self) -> None:
        """With the faults over, the session ends and every copy is freed."""
        if not hasattr(self, "machine"):
            return
        for _ in range(400):
            self.fair_round()
            if self.machine.settled and not any(worker.copies for worker in self.workers):
                break
        assert self.machine.phase in (OwnershipPhase.FINISHED, OwnershipPhase.CANCELLED), self.machine.phase
        if self.machine.phase is OwnershipPhase.FINISHED:
            assert self.client == expected_ids(PROMPT, TOKENS)
        assert not any(worker.copies for worker in self.workers), "a copy is left over"

    def fair_round(self) -> None:
        self.miss_target()
        for worker in self.workers:
            if not worker.connected:
                self.reconnect(worker)
            self.place(worker)
            worker.step()
            worker.repeat()
            self.deliver(worker, down=999, up=999)
        self.out(self.machine.repeat())


TestOrders = Orders.TestCase
TestOrders.settings = settings(
    max_examples=int(os.environ.get("KVROLL_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
