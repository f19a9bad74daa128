"""Placement, the frame log, session tokens and flags: the small pure parts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll.v1 import common_pb2 as pb
from kvroll_core.epoch import Epoch
from kvroll_gateway.main import parse_args
from kvroll_gateway.routing.pick import Candidate, pick
from kvroll_gateway.sessions.log import DeliveryLog, Entry
from kvroll_gateway.sessions.messages import write_epoch
from kvroll_gateway.sessions.ports import InstanceLoad, NoWorker, Seeker
from kvroll_gateway.sessions.token import SessionKey, event_id

NOW = Epoch(1, "g", 4)


def candidate(name: str, model: str = "m", *, admitted: bool = True, admitting: bool = True) -> Candidate:
    return Candidate(name, model, admitted, admitting)


def test_the_least_loaded_gets_it() -> None:
    assert (
        pick(
            [candidate("a"), candidate("b"), candidate("c")], Seeker("m"), InstanceLoad({"a": 2, "b": 1, "c": 1}), ["m"]
        )
        == "b"
    )


@pytest.mark.parametrize("closed", [{"admitted": False}, {"admitting": False}, {"model": "other"}])
def test_a_closed_worker_gets_nothing(closed: dict[str, bool]) -> None:
    assert isinstance(pick([candidate("a", **closed)], Seeker("m"), InstanceLoad(), ["m"]), NoWorker)  # type: ignore[arg-type]


def test_an_excluded_worker_gets_nothing() -> None:
    assert pick([candidate("a"), candidate("b")], Seeker("m", {"a"}), InstanceLoad({"b": 9}), ["m"]) == "b"


def test_an_unknown_model_is_not_the_same_as_no_worker() -> None:
    assert pick([candidate("a")], Seeker("x"), InstanceLoad(), ["m"]) == NoWorker(
        False, "expected one of the served models (m), found 'x'"
    )
    nobody = pick([], Seeker("x"), InstanceLoad(), [])
    assert isinstance(nobody, NoWorker)
    assert nobody.known_model  # nothing is known yet: unavailable, not the client's mistake


def frame(index: int, epoch: Epoch = NOW, finish: str = "") -> pb.Frame:
    return pb.Frame(epoch=write_epoch(epoch), index=index, token_id=100 + index, text="ab", finish_reason=finish)


def test_the_log_takes_only_the_next_index_of_the_current_epoch() -> None:
    log = DeliveryLog(10)
    assert log.offer(frame(0), NOW) is Entry.ACCEPTED
    assert log.offer(frame(0), NOW) is Entry.DUPLICATE
    assert log.offer(frame(2), NOW) is Entry.GAP
    assert log.offer(frame(1, NOW._replace(step=3)), NOW) is Entry.STALE
    assert log.offer(frame(1, finish="stop"), NOW) is Entry.ACCEPTED
    assert log.offer(frame(2), NOW) is Entry.DUPLICATE  # it has finished
    assert (log.token_ids, log.emitted_chars, log.duplicates) == ([100, 101], 4, 2)
    assert [one.index for one in log.take()] == [0, 1]
    assert log.take() == []


@given(st.lists(st.integers(0, 12), max_size=80))
def test_whatever_arrives_the_client_reads_a_prefix_in_order(indices: list[int]) -> None:
    log, read = DeliveryLog(3), []
    for index in indices:
        log.offer(frame(index), NOW)
        read += [one.index for one in log.take()]
    assert read == list(range(log.next_index))
    assert not log.overflowed


def test_a_log_that_nobody_reads_overflows_and_still_takes_frames() -> None:
    log = DeliveryLog(2)
    assert [log.offer(frame(index), NOW) for index in range(4)] == [Entry.ACCEPTED] * 4
    assert log.overflowed


def test_session_tokens_cannot_be_made_up(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    key = SessionKey.load(path)
    token = key.sign("abc")
    assert SessionKey.load(path).verify(token) == "abc"
    assert key.verify(token.replace("abc", "abd")) is None
    assert SessionKey.load(None).verify(token) is None
    assert event_id(token, NOW, 7) == f"{token}.1-g-4.7"
    assert token.count(".") == 0
    path.write_text("short")
    with pytest.raises(ValueError, match="at least 16 bytes"):
        SessionKey.load(path)


def test_flags() -> None:
    settings = parse_args(["--worker", "a:1", "--worker", "b:2", "--port", "9", "--drain-seconds", "5"])
    assert (settings.workers, settings.namespace, settings.port, settings.drain_seconds) == (
        ("a:1", "b:2"),
        None,
        9,
        5.0,
    )
    assert parse_args(["--namespace", "n"]).namespace == "n"
    for wrong in ([], ["--namespace", "n", "--worker", "a:1"]):
        with pytest.raises(SystemExit):
            parse_args(wrong)
