"""The pure machines of a worker's sessions, each alone: fence, frames, both ends of a move, pace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.epoch import Epoch
from kvroll_core.words import VerdictKind
from kvroll_worker.move.messages import Peer
from kvroll_worker.move.source.attempt import MovePhase, MovePhaseError, SourceMove, TransferDecision, TransferResult
from kvroll_worker.move.source.pace import MAX_ROUNDS, TokenBucket, another_round
from kvroll_worker.move.target.reservations import MoveGoneError, PreparedCopy, TargetPhase, TargetTable
from kvroll_worker.own.fence import Fence
from kvroll_worker.own.frames import FrameOrderError, UnacknowledgedFrames
from kvroll_worker.own.record import record_of
from kvroll_worker.request import SessionState

TARGET = Peer("T", "T/1", "127.0.0.1:1")
STATE = SessionState("s", "m", [1])
EPOCHS = st.builds(Epoch, st.integers(1, 2), st.sampled_from(["g", "h"]), st.integers(0, 3))


@given(st.lists(st.tuples(st.sampled_from("ab"), EPOCHS, st.booleans())))
def test_the_fence_never_forgets_or_lowers_what_it_saw(seen: list[tuple[str, Epoch, bool]]) -> None:
    fence = Fence()
    highest: dict[str, Epoch] = {}
    for session_id, epoch, bury in seen:
        (fence.bury if bury else fence.hold)(session_id, epoch)
        highest[session_id] = max(highest.get(session_id, epoch), epoch)
        assert fence.highest(session_id) == highest[session_id]
        assert fence.admits(session_id, epoch) == (epoch == highest[session_id])
        assert not fence.admits_new(session_id, epoch)
        assert fence.admits_new(session_id, highest[session_id].next_step())


def test_only_tombstones_are_forgotten_and_the_oldest_first() -> None:
    fence = Fence(max_tombstones=2)
    fence.hold("live", Epoch(1, "g", 0))
    for name in ("old", "newer", "newest"):
        fence.bury(name, Epoch(1, "g", 1))
    assert [fence.highest(n) is None for n in ("live", "old", "newer", "newest")] == [False, True, False, False]


@given(st.integers(0, 5), st.integers(0, 20), st.lists(st.integers(0, 30)))
def test_frames_are_kept_from_the_acknowledged_index_on(first: int, count: int, acknowledgements: list[int]) -> None:
    log: UnacknowledgedFrames[int] = UnacknowledgedFrames(first)
    for index in range(first, first + count):
        log.append(index, index)
    acknowledged = first
    for next_index in acknowledgements:
        log.acknowledge(next_index)
        acknowledged = max(acknowledged, min(next_index, first + count))
        assert log.acknowledged == acknowledged
        assert log.next_index == first + count
        assert list(log.since(next_index)) == list(range(max(next_index, acknowledged), first + count))


def test_a_token_out_of_order_is_an_error_not_a_gap() -> None:
    log: UnacknowledgedFrames[str] = UnacknowledgedFrames(3)
    with pytest.raises(FrameOrderError, match="expected the token with index 3, found 4"):
        log.append(4, "x")


def a_move() -> SourceMove:
    return SourceMove("m", "s", Epoch(1, "g", 1), TARGET, VerdictKind.EXACT)


@given(
    st.sampled_from(["m", "n"]), st.sampled_from(["s", "t"]), EPOCHS, st.sampled_from(TransferResult), st.none() | EPOCHS,
    st.sampled_from(["copying", "frozen", "commit_sent", "aborted"]),
)  # fmt: skip
def test_an_answer_counts_only_in_commit_sent_and_for_the_same_move(
    migration_id: str, session_id: str, epoch: Epoch, answer: TransferResult, resume_epoch: Epoch | None, phase: str
) -> None:
    move = a_move()
    if phase != "copying":
        move.freeze(STATE)
    if phase == "commit_sent":
        move.commit_sent()
    if phase == "aborted":
        move.abort("x")
    decision = move.decide(migration_id, session_id, epoch, answer, resume_epoch)
    asked = phase == "commit_sent" and (migration_id, session_id, epoch) == ("m", "s", Epoch(1, "g", 1))
    if not asked:
        assert decision is TransferDecision.IGNORE
        assert move.phase == phase
    elif answer is TransferResult.UNKNOWN:
        assert (decision, move.phase) == (TransferDecision.STAY_FROZEN, MovePhase.COMMIT_SENT)
    elif answer is TransferResult.RESUME:
        above = resume_epoch is not None and resume_epoch > epoch
        assert decision is (TransferDecision.RESUME if above else TransferDecision.IGNORE)
    else:
        assert (decision, move.phase) == (TransferDecision.RELEASE, MovePhase.RELEASED)


def test_a_source_that_asked_can_no_longer_abort() -> None:
    move = a_move()
    move.freeze(STATE)
    move.commit_sent()
    assert not move.abort("timed out")
    assert move.phase is MovePhase.COMMIT_SENT
    with pytest.raises(MovePhaseError, match="expected copying, found commit_sent"):
        move.freeze(STATE)


def test_late_pages_of_an_older_generation_are_refused() -> None:
    table = TargetTable()
    old = table.reserve("m1", "s", Epoch(1, "g", 1), VerdictKind.EXACT, now=0)
    table.free("m1", "s")
    new = table.reserve("m2", "s", Epoch(1, "g", 1), VerdictKind.EXACT, now=1)
    assert new.generation > old.generation
    with pytest.raises(MoveGoneError, match="no reservation here"):
        table.receiving("m1", "s", old.generation, now=1)
    with pytest.raises(MoveGoneError, match=f"expected reservation generation {new.generation}"):
        table.receiving("m2", "s", old.generation, now=1)
    assert table.receiving("m2", "s", new.generation, now=1).phase is TargetPhase.RECEIVING


def test_a_prepared_copy_changes_no_more_and_its_lease_runs() -> None:
    table = TargetTable(lease_seconds=30)
    move = table.reserve("m", "s", Epoch(1, "g", 1), VerdictKind.EXACT, now=0)
    table.receiving("m", "s", move.generation, now=20)
    assert not table.expired(now=49)
    copy = PreparedCopy(b"digest", Epoch(1, "g", 1), record_of(STATE, "Exact", "bf16", "bf16"))
    table.prepared("m", "s", move.generation, copy, now=49)
    with pytest.raises(MoveGoneError, match="already prepared"):
        table.receiving("m", "s", move.generation, now=50)
    assert table.expired(now=79) == [move]


def test_an_abort_before_the_offer_leaves_a_tombstone() -> None:
    table = TargetTable()
    assert table.free("m", "s") is None
    assert table.buried("m", "s")
    assert not table.buried("m", "t")


def test_the_bucket_lets_through_what_it_is_told_to() -> None:
    bucket = TokenBucket(1000)
    assert [bucket.delay_seconds(500, now=10.0) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert bucket.delay_seconds(500, now=20.0) == 0.0
    bucket.set_rate(0)
    assert bucket.delay_seconds(10**12, now=20.0) == 0.0


@pytest.mark.parametrize(
    ("rounds", "pages_left", "rate", "again"),
    [
        (0, 100, 0.0, True),
        (0, 0, 0.0, False),
        (1, 2, 1.0, False),  # next to nothing is left
        (1, 50, 1e9, False),  # fits into the downtime at this speed
        (1, 50, 1e6, True),
        (MAX_ROUNDS, 50, 1.0, False),
    ],
)
def test_rounds_end_when_the_rest_fits_into_the_downtime(
    rounds: int, pages_left: int, rate: float, again: bool
) -> None:
    assert another_round(rounds, pages_left, 100_000, rate, 0.05) is again
