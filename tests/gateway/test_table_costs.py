"""What a tick of the session table costs is counted in lines run, not in seconds."""

import sys
from types import FrameType
from typing import Any

import pytest

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll_gateway.metrics import GatewayMetrics
from kvroll_gateway.sessions.messages import Send, read_epoch, write_epoch
from kvroll_gateway.sessions.ports import InstanceLoad, Loss, NoWorker, Seeker
from kvroll_gateway.sessions.table import SessionTable
from kvroll_gateway.settings import GatewaySettings


class OneWorker:
    """Takes every session."""

    precisions: dict[str, tuple[str, str]] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.sent: list[Send] = []

    def send(self, send: Send) -> None:
        self.sent.append(send)

    def place(self, seeker: Seeker, load: InstanceLoad) -> str | NoWorker:
        return "w" if load.sessions.get("w", 0) < 10_000 else NoWorker(True, "full")

    def reachable(self, instance_id: str) -> bool:
        return True


class Bench:
    def __init__(self) -> None:
        self.now_seconds = 100.0
        self.workers = OneWorker()
        self.table = SessionTable(GatewaySettings(), "g", GatewayMetrics(), lambda: self.now_seconds)
        self.table.bind(self.workers)
        self._count = 0

    def begin(self) -> str:
        self._count += 1
        session_id = f"s{self._count}"
        self.table.open(inf.Submit(session_id=session_id, model="m"))
        state = pb.SessionState(session_id=session_id, prompt_token_ids=[1])
        submitted = inf.Submitted(session_id=session_id, epoch=self.epoch(session_id), state=state)
        self.table.received("w", inf.AttachResponse(submitted=submitted))
        return session_id

    def epoch(self, session_id: str) -> pb.Epoch:
        session = self.table.find(session_id)
        assert session is not None
        attempt = session.ownership.attempt
        return write_epoch(attempt.epoch if attempt else session.ownership.epoch)

    def finish(self, session_id: str) -> None:
        frame = pb.Frame(session_id=session_id, epoch=self.epoch(session_id), finish_reason="stop")
        self.table.received("w", inf.AttachResponse(frames=inf.FrameBatch(frames=[frame])))

    def lines(self, *, seconds: float = 3.0) -> int:
        """Lines of Python that the ticks of so many seconds run."""
        ran = 0

        def count(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal ran
            if "kvroll_gateway" not in frame.f_code.co_filename:  # a collector's hooks run when they like
                return None
            ran += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            for _ in range(round(seconds * 8)):
                self.now_seconds += 0.125  # a float that adds up exactly
                self.table.tick()
        finally:
            sys.settrace(before)
        return ran


def test_finished_sessions_cost_nothing_a_tick() -> None:
    bench = Bench()
    running = bench.begin()
    bench.finish(bench.begin())
    one = bench.lines()
    for _ in range(2000):
        bench.finish(bench.begin())
    assert bench.lines() == one
    assert bench.table.live == 1
    bench.finish(running)


def test_running_sessions_cost_nothing_a_tick_either() -> None:
    bench = Bench()
    empty = bench.lines()
    for _ in range(200):
        bench.begin()
    assert bench.lines() == empty


def test_a_cancel_is_repeated_until_it_is_confirmed_though_the_session_has_ended() -> None:
    bench = Bench()
    session_id = bench.begin()
    session = bench.table.find(session_id)
    assert session is not None
    session.cancel("gone")

    def cancels() -> int:
        return sum(one.message.WhichOneof("message") == "cancel" for one in bench.workers.sent)

    first = cancels()
    bench.lines(seconds=3)
    assert first + 2 <= cancels() <= first + 4
    cancelled = inf.Cancelled(session_id=session_id, epoch=bench.epoch(session_id))
    bench.table.received("w", inf.AttachResponse(cancelled=cancelled))
    settled = cancels()
    bench.lines(seconds=3)
    assert cancels() == settled


def test_ended_sessions_are_forgotten_in_the_order_of_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvroll_gateway.sessions.table._KEEP_ENDED_SESSIONS", 3)
    bench = Bench()
    begun = [bench.begin() for _ in range(5)]
    for session_id in reversed(begun):
        bench.finish(session_id)
    bench.lines(seconds=1.5)
    assert [one for one in begun if bench.table.find(one)] == begun[:3]
    bench.lines(seconds=601)
    assert not any(bench.table.find(one) for one in begun)


def test_an_ended_session_is_found_when_its_worker_asks_or_comes_back() -> None:
    bench = Bench()
    session_id = bench.begin()
    bench.finish(session_id)
    epoch = bench.epoch(session_id)
    bench.workers.sent.clear()
    bench.table.lost("w", certain=False, reason=Loss.SILENT)
    bench.table.connected("w", [inf.HeldSession(session_id=session_id, epoch=epoch, next_index=1)])
    (ack,) = [one.message.ack for one in bench.workers.sent if one.message.WhichOneof("message") == "ack"]
    assert (read_epoch(ack.epoch), ack.next_index) == (read_epoch(epoch), 1)
