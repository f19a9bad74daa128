"""Which sessions this worker owns, at which epoch and for which gateway: what docs/design.md §7 asks of a worker, as one pure machine.

Time is a value, the outside is a list of effects. The serving side carries the effects out in order; the model test does too.
"""

from kvroll_core.epoch import Epoch
from kvroll_core.words import VerdictKind
from kvroll_worker.move.messages import Peer
from kvroll_worker.move.source.attempt import SourceMove, TransferDecision, TransferResult
from kvroll_worker.move.target.reservations import Reservation, TargetPhase, TargetTable
from kvroll_worker.own import effects as fx
from kvroll_worker.own.effects import Effect
from kvroll_worker.own.fence import Fence
from kvroll_worker.own.frames import UnacknowledgedFrames
from kvroll_worker.own.held import Held, HeldPhase
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.request import TokenEvent


class FencedError(Exception):
    """A higher epoch is known for the session, so this message does nothing."""


class Ledger:
    """Owned sessions, the fence and the reservations of one worker instance.

    `max_unacknowledged` frames a session are decoded ahead of its gateway, then it pauses; a session that no gateway claims
    is freed after `orphan_lease_seconds`; TransferOwnership is repeated every `retry_seconds`.
    """

    def __init__(
        self,
        *,
        max_unacknowledged: int = 256,
        orphan_lease_seconds: float = 60.0,
        reservation_lease_seconds: float = 30.0,
        retry_seconds: float = 1.0,
    ) -> None:
        self.fence = Fence()
        self.targets = TargetTable(reservation_lease_seconds)
        self.sessions: dict[str, Held] = {}
        self._gateways: set[str] = set()
        self._max_unacknowledged = max_unacknowledged
        self._orphan_lease_seconds = orphan_lease_seconds
        self._retry_seconds = retry_seconds

    # -- sessions begin, speak and end

    def admit(
        self, record: SessionRecord, epoch: Epoch, gateway_id: str, now: float
    ) -> tuple[Held, bool, list[Effect]]:
        """A new session or a replay of one: (entry, whether it is new, effects). A repeat at the same epoch finds the entry again.

        A copy of an older epoch is replaced, its move cancelled.

        Raises:
            FencedError: this or a higher epoch was seen, and there is no copy at it.
        """
        session_id = record.admitted.session_id
        held = self.sessions.get(session_id)
        if held is not None and held.epoch == epoch:
            return held, False, []
        if not self.fence.admits_new(session_id, epoch):
            raise FencedError(f"session {session_id}: epoch {epoch} is not above {self.fence.highest(session_id)}")
        out: list[Effect] = []
        if held is not None:
            out += self._drop(held, "replaced")
        out += self._free_reservation(session_id)
        held = Held(session_id, epoch, gateway_id, record, UnacknowledgedFrames(record.num_outputs))
        self._hold(held, now)
        return held, True, out

    def admitted(self, held: Held) -> bool:
        """The engine took the session; False if it was cancelled meanwhile."""
        if self.sessions.get(held.session_id) is not held:
            return False
        held.phase = HeldPhase.RUNNING
        return True

    def failed(self, held: Held) -> list[Effect]:
        """The engine refused the session or gave it up; the epoch stays promised."""
        return self._drop(held, "failed") if self.sessions.get(held.session_id) is held else []

    def token(self, event: TokenEvent) -> list[Effect]:
        """The engine generated a token; a late one of a copy that is gone is dropped.

        Raises:
            FrameOrderError: the index is not the next one.
        """
        held = self.sessions.get(event.session_id)
        if held is None or held.phase is not HeldPhase.RUNNING:
            return []
        held.log.append(event.index, event)
        out: list[Effect] = [self._frames(held, (event,))]
        if event.finish_reason is not None:
            held.phase = HeldPhase.FINISHED
            out += self._withdraw(held, "the session finished")
        elif len(held.log) >= self._max_unacknowledged and not held.paused:
            held.paused = True
            out.append(fx.Freeze(event.session_id))
        return out

    def acknowledge(self, session_id: str, epoch: Epoch, next_index: int) -> list[Effect]:
        """The gateway has every frame below `next_index`; an acknowledgement of another epoch does nothing."""
        held = self.sessions.get(session_id)
        if held is None or held.epoch != epoch or next_index > held.log.next_index:
            return []
        held.orphan_at = None
        held.log.acknowledge(next_index)
        if held.phase is HeldPhase.FINISHED and not held.log:
            return self._drop(held, "finished", free=False)
        if held.paused and len(held.log) <= self._max_unacknowledged // 2:
            held.paused = False
            return self._thawed(held)
        return []

    def resume(self, session_id: str, epoch: Epoch, next_index: int) -> list[Effect]:
        """Sends again from max(next_index, acknowledged) at the current epoch; claims the session for its gateway.

        It says as much as an acknowledgement: the gateway has every frame below `next_index`, and after a break no Ack may follow
        until a new frame comes, which a paused session does not send.
        """
        out = self.acknowledge(session_id, epoch, next_index)
        held = self.sessions.get(session_id)
        if held is None or held.epoch != epoch:
            return out
        frames = held.log.since(next_index)
        if frames:
            out.append(self._frames(held, frames))
        return out + (self._transfer(held) if held.commit_sent else [])

    def cancel(self, session_id: str, epoch: Epoch, gateway_id: str) -> list[Effect]:
        """Frees every copy at or below `epoch`, running or reserved, tells the peer of a move, and leaves a tombstone."""
        out: list[Effect] = []
        held = self.sessions.get(session_id)
        if held is not None and held.epoch <= epoch:
            out += self._drop(held, "cancelled")
        reservation = self.targets.of_session(session_id)
        if reservation is not None and reservation.epoch <= epoch:
            out += self._free_reservation(session_id)
        if session_id not in self.sessions:
            self.fence.bury(session_id, epoch)
        return [*out, fx.SendCancelled(gateway_id, session_id, epoch)]

    # -- moves away

    def start_move(self, held: Held, migration_id: str, target: Peer, kind: VerdictKind) -> SourceMove:
        """Begins an attempt: the session goes on decoding."""
        move = SourceMove(migration_id, held.session_id, held.epoch, target, kind)
        held.move = move
        return move

    def transfer(self, move: SourceMove, now: float) -> list[Effect]:
        """The target is prepared: ask the gateway; until it answers nobody here decides."""
        held = self.sessions[move.session_id]
        move.commit_sent()
        move.last_sent = now
        return self._transfer(held)

    def abort_move(self, move: SourceMove, reason: str) -> list[Effect]:
        """Ends an attempt before COMMIT_SENT: the session goes on here. Does nothing after."""
        was_frozen, held = move.frozen, self.sessions.get(move.session_id)
        if not move.abort(reason):
            return []
        out: list[Effect] = [fx.AbortPeer(move), fx.MoveEnded(move)]
        if was_frozen and held is not None and held.move is move:
            out += self._thawed(held)
        return out

    def answer(
        self,
        migration_id: str,
        session_id: str,
        epoch: Epoch,
        answer: TransferResult,
        resume_epoch: Epoch | None,
        now: float,
    ) -> list[Effect]:
        """The gateway's answer to TransferOwnership."""
        held = self.sessions.get(session_id)
        if held is None or held.move is None:
            return []
        move = held.move
        if resume_epoch is not None and not self.fence.admits(session_id, resume_epoch):
            return []
        decision = move.decide(migration_id, session_id, epoch, answer, resume_epoch)
        if decision is TransferDecision.RELEASE:
            return self._drop(held, "moved" if answer is TransferResult.COMMITTED else "superseded")
        if decision is TransferDecision.STAY_FROZEN and held.orphan_at is None:
            held.orphan_at = now + self._orphan_lease_seconds
        if decision is not TransferDecision.RESUME or resume_epoch is None:
            return []
        held.epoch, held.orphan_at = resume_epoch, None
        self.fence.hold(session_id, resume_epoch)
        frames = held.log.since(0)
        again: list[Effect] = [self._frames(held, frames)] if frames else []
        return [*self._thawed(held), *again, fx.MoveEnded(move)]

    # -- moves to here

    def may_reserve(self, session_id: str, epoch: Epoch) -> str | None:
        """Why an Offer of that session must be refused, None if it may be taken."""
        if session_id in self.sessions:
            return f"this worker owns the session at epoch {self.sessions[session_id].epoch}"
        if not self.fence.admits(session_id, epoch):
            return f"epoch {epoch} is below the promised {self.fence.highest(session_id)}"
        other = self.targets.of_session(session_id)
        if other is not None and other.epoch > epoch:
            return f"a reservation at the higher epoch {other.epoch} is open"
        return None

    def reserve(
        self, migration_id: str, session_id: str, epoch: Epoch, kind: VerdictKind, now: float
    ) -> tuple[Reservation, list[Effect]]:
        """Opens a reservation; an open one of another attempt is dead once its own source offers again, and is freed."""
        out = self._free_reservation(session_id)
        return self.targets.reserve(migration_id, session_id, epoch, kind, now), out

    def free_move(self, migration_id: str, session_id: str) -> list[Effect]:
        """Abort from the source, or a reservation that could not be filled: frees it unless it became active."""
        return [fx.Free(session_id)] if self.targets.free(migration_id, session_id) is not None else []

    def activate(self, migration_id: str, session_id: str, epoch: Epoch, gateway_id: str, now: float) -> list[Effect]:
        """The gateway makes this worker the owner at `epoch`: only a prepared copy, and only above everything promised."""
        move, owned = self.targets.find(migration_id, session_id), self.sessions.get(session_id)
        if move is not None and move.active_epoch == epoch and owned is not None and owned.epoch == epoch:
            return [
                fx.SendActivated(gateway_id, migration_id, session_id, epoch)
            ]  # a repeat; not for a copy that is gone again
        if move is None or move.phase is not TargetPhase.PREPARED or move.copy is None:
            found = "unknown" if move is None else str(move.phase)
            return self._refuse(gateway_id, migration_id, session_id, epoch, f"expected a prepared copy, found {found}")
        if epoch <= move.epoch or not self.fence.admits(session_id, epoch):
            return self._refuse(gateway_id, migration_id, session_id, epoch, "a higher epoch is promised")
        self.targets.activate(move, epoch)
        record = move.copy.record
        held = Held(session_id, epoch, gateway_id, record, UnacknowledgedFrames(record.num_outputs), HeldPhase.RUNNING)
        self._hold(held, now)
        return [fx.Release(session_id), fx.SendActivated(gateway_id, migration_id, session_id, epoch)]

    # -- gateways and time

    def attached(self, gateway_id: str) -> None:
        """Its stream is up; each of its sessions is claimed by the Resume or Ack that follows."""
        self._gateways.add(gateway_id)

    def detached(self, gateway_id: str, now: float) -> None:
        """Its stream broke: its sessions are orphans until it claims them."""
        self._gateways.discard(gateway_id)
        for held in self.sessions.values():
            if held.gateway_id == gateway_id and held.orphan_at is None:
                held.orphan_at = now + self._orphan_lease_seconds

    def is_attached(self, gateway_id: str) -> bool:
        return gateway_id in self._gateways

    def tick(self, now: float) -> list[Effect]:
        """Leases that ran out, and transfers to ask for again."""
        out: list[Effect] = []
        for reservation in self.targets.expired(now):
            out += self.free_move(reservation.migration_id, reservation.session_id)
        for held in list(self.sessions.values()):
            if held.orphan_at is not None and now >= held.orphan_at:
                out += self._drop(held, "orphaned")
            elif held.move is not None and held.commit_sent and now >= held.move.last_sent + self._retry_seconds:
                held.move.last_sent = now
                out += self._transfer(held)
        return out

    # -- inside

    def _hold(self, held: Held, now: float) -> None:
        self.sessions[held.session_id] = held
        self.fence.hold(held.session_id, held.epoch)
        if held.gateway_id not in self._gateways:
            held.orphan_at = now + self._orphan_lease_seconds

    def _drop(self, held: Held, way: str, *, free: bool = True) -> list[Effect]:
        del self.sessions[held.session_id]
        self.fence.bury(held.session_id)
        out = self._withdraw(held, f"the session is {way}")
        return [*out, *([fx.Free(held.session_id)] if free else []), fx.Gone(held.session_id, way)]

    def _withdraw(self, held: Held, reason: str) -> list[Effect]:
        move, held.move = held.move, None
        if move is None:
            return []
        if move.ended:  # released: the target runs, it must not be aborted
            return [fx.MoveEnded(move)]
        move.withdraw(reason)
        return [fx.AbortPeer(move), fx.MoveEnded(move)]

    def _thawed(self, held: Held) -> list[Effect]:
        return [] if held.frozen or held.phase is HeldPhase.FINISHED else [fx.Thaw(held.session_id)]

    def _transfer(self, held: Held) -> list[Effect]:
        assert held.move is not None
        frames = held.log.since(0)
        return [fx.SendTransfer(held.gateway_id, held.move, frames, held.log.next_index, held.record)]

    def _frames(self, held: Held, frames: tuple[TokenEvent, ...]) -> fx.SendFrames:
        return fx.SendFrames(held.gateway_id, held.session_id, held.epoch, frames, held.record)

    def _free_reservation(self, session_id: str) -> list[Effect]:
        reservation = self.targets.of_session(session_id)
        return [] if reservation is None else self.free_move(reservation.migration_id, session_id)

    def _refuse(self, gateway_id: str, migration_id: str, session_id: str, epoch: Epoch, reason: str) -> list[Effect]:
        return [
            fx.SendActivateRefused(gateway_id, migration_id, session_id, epoch, reason, self.fence.highest(session_id))
        ]
