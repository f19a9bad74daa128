"""The ownership machine against every order of messages that hypothesis finds.

Streams break, messages repeat, workers die or are only suspected. The client gets each index once, in order, with the right ids; no worker
runs above its gateway's record; at the end nothing is left over.
"""

from collections import deque

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvroll.v1 import inference_pb2 as inf
from kvroll_gateway.sessions.messages import Send
from kvroll_gateway.sessions.ownership import Ownership
from kvroll_gateway.sessions.phases import TERMINAL, Output, Phase

from .fake_worker import MODEL, Copy, FakeWorker, expected_ids

PROMPT = [3, 1, 4]
TOKENS = 6
SESSION = "s"
WORKERS = 3


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
    @initialize()
    def begin(self) -> None:
        self.workers = [ModelWorker(f"w{number}") for number in range(WORKERS)]
        self.machine = Ownership(inf.Submit(session_id=SESSION, model=MODEL, token_ids=PROMPT), "gw", 1000)
        self.machine.template.sampling.max_tokens = TOKENS
        self.client: list[int] = []
        self.place(0)

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
        copy: Copy | None = worker.copies.get(SESSION)
        held = None
        if copy is not None:
            held = inf.HeldSession(session_id=SESSION, next_index=len(copy.state.output_token_ids))
            held.epoch.reign, held.epoch.gateway_id, held.epoch.step = copy.epoch
        self.out(self.machine.connected(worker.instance_id, held))

    # --- what may happen -----------------------------------------------------------------------------------------

    some = st.integers(0, WORKERS - 1)

    @rule(number=some)
    def place(self, number: int) -> None:
        if self.machine.phase is Phase.SEEKING and self.workers[number].connected:
            self.out(self.machine.placed(self.workers[number].instance_id))

    @rule(number=some, again=st.sampled_from([False, False, True]))
    def gateway_hears(self, number: int, again: bool) -> None:
        worker = self.workers[number]
        if worker.outgoing:
            self.receive(worker, worker.outgoing[0] if again else worker.outgoing.popleft())

    @rule(number=some, again=st.sampled_from([False, False, True]))
    def worker_hears(self, number: int, again: bool) -> None:
        worker = self.workers[number]
        if worker.incoming:
            worker.take(worker.incoming[0] if again else worker.incoming.popleft())

    @rule(number=some)
    def token(self, number: int) -> None:
        self.workers[number].step()

    @rule(source=some, to=some)
    def move(self, source: int, to: int) -> None:
        copy = self.workers[source].copies.get(SESSION)
        there = self.workers[to]
        free = source != to and SESSION not in there.copies and SESSION not in there.prepared
        if copy is not None and not copy.frozen and not copy.finished and free:
            self.workers[source].move(SESSION, there)

    @rule(number=some)
    def reservation_expires(self, number: int) -> None:
        self.workers[number].prepared.pop(SESSION, None)

    @rule(number=some)
    def breaks(self, number: int) -> None:
        self.workers[number].break_stream()

    @rule(number=some)
    def comes_back(self, number: int) -> None:
        if not self.workers[number].connected:
            self.reconnect(self.workers[number])

    @rule(number=some)
    def is_suspected(self, number: int) -> None:
        if not self.workers[number].connected:
            self.out(self.machine.lost(self.workers[number].instance_id, certain=False))

    @rule(number=some)
    def restarts(self, number: int) -> None:
        """The process dies and another takes its place, under another instance id."""
        worker = self.workers[number]
        before = worker.instance_id
        worker.break_stream()
        worker._boot()
        self.out(self.machine.lost(before, certain=True))

    @rule()
    def target_is_missed(self) -> None:
        """The table's watch: a target that no worker is any more never answers."""
        known = {worker.instance_id for worker in self.workers}
        if self.machine.move is not None and self.machine.move.target not in known:
            self.out(self.machine.lost(self.machine.move.target, certain=False))

    @rule()
    def timer(self) -> None:
        self.out(self.machine.repeat())

    @rule(number=some)
    def worker_asks_again(self, number: int) -> None:
        self.workers[number].repeat()

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
        assert self.machine.phase in (Phase.FINISHED, Phase.CANCELLED), self.machine.phase
        if self.machine.phase is Phase.FINISHED:
            assert self.client == expected_ids(PROMPT, TOKENS)
        assert not any(worker.copies for worker in self.workers), "a copy is left over"

    def fair_round(self) -> None:
        self.target_is_missed()
        for number, worker in enumerate(self.workers):
            if not worker.connected:
                self.reconnect(worker)
            self.place(number)
            while worker.incoming:
                worker.take(worker.incoming.popleft())
            worker.step()
            worker.repeat()
            while worker.outgoing:
                self.receive(worker, worker.outgoing.popleft())
        self.timer()


TestOrders = Orders.TestCase
TestOrders.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
