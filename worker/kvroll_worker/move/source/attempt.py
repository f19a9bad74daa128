"""The source's end of one move: RUNNING -> COPYING -> FROZEN -> COMMIT_SENT -> RELEASED or RUNNING again.

Rules 1 and 3 of docs/design.md §7.
"""

from dataclasses import dataclass
from enum import StrEnum

from kvroll_core.epoch import Epoch
from kvroll_core.words import VerdictKind
from kvroll_worker.move.messages import Peer
from kvroll_worker.request import SessionState


class MovePhase(StrEnum):
    """`COPYING` the session decodes on, `FROZEN` it does not, `COMMIT_SENT` only the gateway decides; the last three are ends."""

    COPYING = "copying"
    FROZEN = "frozen"
    COMMIT_SENT = "commit_sent"
    RELEASED = "released"
    RESUMED = "resumed"
    ABORTED = "aborted"


class TransferResult(StrEnum):
    """What a gateway may answer to TransferOwnership."""

    COMMITTED = "committed"
    RESUME = "resume"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"


class TransferDecision(StrEnum):
    """What the source does with an answer."""

    IGNORE = "ignore"
    RELEASE = "release"
    RESUME = "resume"
    STAY_FROZEN = "stay_frozen"


class MovePhaseError(Exception):
    """The step is not allowed in this phase of the move."""


ENDS = frozenset({MovePhase.RELEASED, MovePhase.RESUMED, MovePhase.ABORTED})


@dataclass(eq=False)
class SourceMove:
    """One attempt to move one session away; a retry is another one, with another `migration_id`."""

    migration_id: str
    session_id: str
    epoch: Epoch  # at which this worker owns the session
    target: Peer
    kind: VerdictKind
    phase: MovePhase = MovePhase.COPYING
    state: SessionState | None = None  # as frozen
    reason: str = ""  # why it ended, for people
    last_sent: float = 0.0

    @property
    def ended(self) -> bool:
        return self.phase in ENDS

    @property
    def frozen(self) -> bool:
        """Whether the session must not be stepped on account of this move."""
        return self.phase in (MovePhase.FROZEN, MovePhase.COMMIT_SENT)

    def freeze(self, state: SessionState) -> None:
        """The session stopped at a step border in `state`."""
        self._require(MovePhase.COPYING)
        self.phase, self.state = MovePhase.FROZEN, state

    def commit_sent(self) -> None:
        """The target is prepared and the gateway is being asked: from here only its answer, a cancel or the orphan lease counts."""
        self._require(MovePhase.FROZEN)
        self.phase = MovePhase.COMMIT_SENT

    def abort(self, reason: str) -> bool:
        """Ends the move if that is still this worker's to decide; False from COMMIT_SENT on, also on a time-out."""
        if self.phase not in (MovePhase.COPYING, MovePhase.FROZEN):
            return False
        self.phase, self.reason = MovePhase.ABORTED, reason
        return True

    def withdraw(self, reason: str) -> None:
        """Ends the move in any phase because the session itself is over here: cancelled, adopted, replaced or orphaned."""
        if not self.ended:
            self.phase, self.reason = MovePhase.ABORTED, reason

    def decide(
        self, migration_id: str, session_id: str, epoch: Epoch, answer: TransferResult, resume_epoch: Epoch | None
    ) -> TransferDecision:
        """Honours an answer only in COMMIT_SENT and only for the same (migration, session, epoch with its gateway)."""
        asked = (self.migration_id, self.session_id, self.epoch)
        if self.phase is not MovePhase.COMMIT_SENT or asked != (migration_id, session_id, epoch):
            return TransferDecision.IGNORE
        if answer is TransferResult.UNKNOWN:
            return TransferDecision.STAY_FROZEN
        if answer is TransferResult.RESUME:
            if resume_epoch is None or resume_epoch <= epoch:
                return TransferDecision.IGNORE
            self.phase, self.reason = MovePhase.RESUMED, "the gateway gave the session back"
            return TransferDecision.RESUME
        self.phase, self.reason = MovePhase.RELEASED, answer.value
        return TransferDecision.RELEASE

    def _require(self, phase: MovePhase) -> None:
        if self.phase is not phase:
            raise MovePhaseError(
                f"move {self.migration_id}: expected {phase}, found {self.phase} ({self.reason or 'in progress'})"
            )
