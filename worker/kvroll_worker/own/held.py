"""One session that this worker owns, as the ledger sees it."""

from dataclasses import dataclass
from enum import StrEnum

from kvroll_core.epoch import Epoch
from kvroll_worker.move.source.attempt import MovePhase, SourceMove
from kvroll_worker.own.frames import UnacknowledgedFrames
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.request import TokenEvent


class HeldPhase(StrEnum):
    ADMITTING = "admitting"  # the engine has not said yes yet
    RUNNING = "running"
    FINISHED = "finished"  # the engine is done; its frames wait for the acknowledgement


@dataclass(eq=False)
class Held:
    """`orphan_at` is when the session is freed unless its gateway claims it before; `paused` means too many unacknowledged frames."""

    session_id: str
    epoch: Epoch
    gateway_id: str
    record: SessionRecord
    log: UnacknowledgedFrames[TokenEvent]
    phase: HeldPhase = HeldPhase.ADMITTING
    paused: bool = False
    move: SourceMove | None = None
    orphan_at: float | None = None

    @property
    def moving(self) -> bool:
        return self.move is not None and not self.move.ended

    @property
    def frozen(self) -> bool:
        """Whether the engine must not step it."""
        return self.paused or (self.move is not None and self.move.frozen)

    @property
    def commit_sent(self) -> bool:
        return self.move is not None and self.move.phase is MovePhase.COMMIT_SENT
