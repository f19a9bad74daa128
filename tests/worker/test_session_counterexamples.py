"""The shortest ways in which a naive ownership protocol breaks, against the ledger.

Two more need a second gateway (Locate and Adopt in docs/design.md §7), which is not built yet.
"""

from kvroll_core.epoch import Epoch
from kvroll_core.words import VerdictKind
from kvroll_worker.move.messages import Peer
from kvroll_worker.move.source.attempt import SourceMove, TransferResult
from kvroll_worker.move.target.reservations import PreparedCopy
from kvroll_worker.own import effects as fx
from kvroll_worker.own.held import Held, HeldPhase
from kvroll_worker.own.ledger import FencedError, Ledger
from kvroll_worker.own.record import SessionRecord, record_of
from kvroll_worker.request import SessionState, TokenEvent

TARGET = Peer("T", "T/1", "127.0.0.1:1")
E1, E2, E3 = (Epoch(1, "g", step) for step in (1, 2, 3))


def record() -> SessionRecord:
    return record_of(SessionState("s", "m", [1]), "Start", "bf16", "bf16")


def frame(index: int, *, last: bool = False) -> TokenEvent:
    return TokenEvent("s", index, 7, "x", "stop" if last else None)


def owner(ledger: Ledger, epoch: Epoch = E1) -> Held:
    ledger.attached("g")
    held, _, _ = ledger.admit(record(), epoch, "g", now=0)
    assert ledger.admitted(held)
    return held


def ask(ledger: Ledger, held: Held, migration_id: str = "m") -> SourceMove:
    move = ledger.start_move(held, migration_id, TARGET, VerdictKind.EXACT)
    move.freeze(SessionState("s", "m", [1]))
    ledger.transfer(move, now=0)
    return move


def prepared(ledger: Ledger, epoch: Epoch = E1, migration_id: str = "m") -> None:
    ledger.attached("g")
    assert ledger.may_reserve("s", epoch) is None
    reservation, _ = ledger.reserve(migration_id, "s", epoch, VerdictKind.EXACT, now=0)
    copy = PreparedCopy(b"d", epoch, record())
    ledger.targets.prepared(migration_id, "s", reservation.generation, copy, now=0)


def kinds(effects: list[fx.Effect]) -> list[type]:
    return [type(e) for e in effects]


def test_1_a_source_thought_dead_is_not_crowned_above_the_owner() -> None:
    """The gateway replays to T at e+1 while S is frozen; S, asking at e, must be told SUPERSEDED and free, whatever comes late."""
    source, target = Ledger(), Ledger()
    held = owner(source)
    move = ask(source, held)
    owner(target, E2)  # the replay
    out = source.answer("m", "s", E1, TransferResult.SUPERSEDED, None, now=1)
    assert kinds(out) == [fx.MoveEnded, fx.Free, fx.Gone]
    assert not source.sessions
    assert source.answer("m", "s", E1, TransferResult.RESUME, E3, now=2) == [], "a late RESUME revives nothing"
    assert move.ended
    assert target.sessions["s"].epoch == E2


def test_4_an_abort_that_overtakes_prepare_leaves_nothing_to_adopt() -> None:
    """Abort first, then the Offer and Prepare of the same migration: the tombstone refuses them."""
    target = Ledger()
    target.attached("g")
    assert target.free_move("m", "s") == []
    assert target.targets.buried("m", "s")
    out = target.activate("m", "s", E2, "g", now=0)
    assert kinds(out) == [fx.SendActivateRefused]
    assert not target.sessions


def test_5_a_lost_frame_is_sent_again_and_drops_nothing_after_it() -> None:
    """#0 is lost with the stream; #1 comes: the worker keeps both and sends from the index that the gateway names."""
    ledger = Ledger()
    held = owner(ledger)
    for index in range(3):
        ledger.token(frame(index))
    [again] = ledger.resume("s", E1, 0)
    assert again == fx.SendFrames("g", "s", E1, (frame(0), frame(1), frame(2)), held.record)
    ledger.acknowledge("s", E1, 2)
    [again] = ledger.resume("s", E1, 1)
    assert again == fx.SendFrames("g", "s", E1, (frame(2),), held.record), "acknowledged frames are gone"
    assert ledger.resume("s", E2, 0) == [], "another epoch is none of this copy's business"


def test_6_a_source_resumes_above_the_target_or_not_at_all() -> None:
    """T is active at e+1: the gateway may only commit. RESUME comes at e+2 and only where Activate was refused."""
    source, target = Ledger(), Ledger()
    held = owner(source)
    source.token(frame(0))
    ask(source, held)
    assert source.answer("m", "s", E1, TransferResult.RESUME, E1, now=1) == [], "not above its own epoch"
    assert held.frozen
    out = source.answer("m", "s", E1, TransferResult.RESUME, E3, now=1)
    assert kinds(out) == [fx.Thaw, fx.SendFrames, fx.MoveEnded]
    assert held.epoch == E3
    # The other order: T's lease ran out before Activate came; it refuses, so that somebody keeps a copy.
    prepared(target)
    assert kinds(target.tick(now=31)) == [fx.Free]
    assert kinds(target.activate("m", "s", E2, "g", now=32)) == [fx.SendActivateRefused]


def test_8_a_finished_session_that_nobody_acknowledges_is_freed_by_its_lease() -> None:
    ledger = Ledger(orphan_lease_seconds=60)
    held = owner(ledger)
    ledger.token(frame(0, last=True))
    assert held.phase is HeldPhase.FINISHED
    ledger.detached("g", now=100)
    assert ledger.tick(now=159) == []
    assert kinds(ledger.tick(now=160)) == [fx.Free, fx.Gone]


def test_a_time_out_in_commit_sent_asks_again_and_never_resumes() -> None:
    ledger = Ledger(retry_seconds=1, orphan_lease_seconds=60)
    held = owner(ledger)
    move = ask(ledger, held)
    assert ledger.abort_move(move, "timed out") == []
    for second in range(1, 50):
        assert kinds(ledger.tick(now=second)) == [fx.SendTransfer]
    assert ledger.answer("m", "s", E1, TransferResult.UNKNOWN, None, now=50) == []
    assert held.frozen, "a gateway without the session decides nothing"
    assert fx.Gone("s", "orphaned") in ledger.tick(now=110)


def test_a_repeated_activate_is_acknowledged_only_while_the_copy_lives() -> None:
    target = Ledger()
    prepared(target)
    assert kinds(target.activate("m", "s", E2, "g", now=1)) == [fx.Release, fx.SendActivated]
    assert kinds(target.activate("m", "s", E2, "g", now=1)) == [fx.SendActivated]
    assert target.free_move("m", "s") == [], "a late Abort does not free what became active"
    target.cancel("s", E2, "g")
    assert kinds(target.activate("m", "s", E2, "g", now=2)) == [fx.SendActivateRefused]


def test_finishing_while_copied_aborts_the_move() -> None:
    ledger = Ledger()
    held = owner(ledger)
    move = ledger.start_move(held, "m", TARGET, VerdictKind.EXACT)
    out = ledger.token(frame(0, last=True))
    assert kinds(out) == [fx.SendFrames, fx.AbortPeer, fx.MoveEnded]
    assert move.ended
    assert not move.frozen


def test_a_cancel_goes_to_the_peer_and_leaves_a_tombstone() -> None:
    ledger = Ledger()
    held = owner(ledger)
    move = ask(ledger, held)
    out = ledger.cancel("s", E1, "g")
    assert out == [
        fx.AbortPeer(move),
        fx.MoveEnded(move),
        fx.Free("s"),
        fx.Gone("s", "cancelled"),
        fx.SendCancelled("g", "s", E1),
    ]
    for epoch in (E1, Epoch(1, "g", 0)):
        try:
            ledger.admit(record(), epoch, "g", now=1)
        except FencedError:
            continue
        raise AssertionError(f"a copy began at {epoch}, which was cancelled")


def test_a_stale_cancel_frees_no_newer_copy() -> None:
    ledger = Ledger()
    held = owner(ledger, E2)
    assert kinds(ledger.cancel("s", E1, "g")) == [fx.SendCancelled]
    assert ledger.sessions["s"] is held


def test_a_paused_session_stays_frozen_when_its_move_fails_and_thaws_with_the_acknowledgement() -> None:
    ledger = Ledger(max_unacknowledged=4)
    held = owner(ledger)
    for index in range(4):
        out = ledger.token(frame(index))
    assert kinds(out) == [fx.SendFrames, fx.Freeze]
    move = ledger.start_move(held, "m", TARGET, VerdictKind.EXACT)
    move.freeze(SessionState("s", "m", [1]))
    assert kinds(ledger.abort_move(move, "no")) == [fx.AbortPeer, fx.MoveEnded]
    assert kinds(ledger.acknowledge("s", E1, 3)) == [fx.Thaw]
