"""What the ledger asks the outside to do: acts on the engine, words to gateways and peers. Plain values, carried out in order."""

from dataclasses import dataclass

from kvroll_core.epoch import Epoch
from kvroll_worker.move.source.attempt import SourceMove
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.request import TokenEvent


@dataclass(frozen=True)
class Free:
    """Free everything that the engine holds of the session or its reservation."""

    session_id: str


@dataclass(frozen=True)
class Freeze:
    session_id: str


@dataclass(frozen=True)
class Thaw:
    session_id: str


@dataclass(frozen=True)
class Release:
    """A held copy became the owner's: let it decode."""

    session_id: str


@dataclass(frozen=True)
class AbortPeer:
    """Tell the target of this move to free its reservation."""

    move: SourceMove


@dataclass(frozen=True)
class MoveEnded:
    """Wake whoever carries this move out."""

    move: SourceMove


@dataclass(frozen=True)
class SendFrames:
    """Tokens for the gateway; the last one of a session carries what `record` says of it."""

    gateway_id: str
    session_id: str
    epoch: Epoch
    frames: tuple[TokenEvent, ...]
    record: SessionRecord


@dataclass(frozen=True)
class SendTransfer:
    """Ask (again) for the transfer of ownership, with every unacknowledged frame."""

    gateway_id: str
    move: SourceMove
    frames: tuple[TokenEvent, ...]
    next_index: int
    record: SessionRecord


@dataclass(frozen=True)
class SendActivated:
    gateway_id: str
    migration_id: str
    session_id: str
    epoch: Epoch


@dataclass(frozen=True)
class SendActivateRefused:
    gateway_id: str
    migration_id: str
    session_id: str
    epoch: Epoch
    reason: str
    highest: Epoch | None


@dataclass(frozen=True)
class SendCancelled:
    gateway_id: str
    session_id: str
    epoch: Epoch


WAYS = ("finished", "cancelled", "moved", "superseded", "replaced", "orphaned", "failed")


@dataclass(frozen=True)
class Gone:
    """A session left this worker's books; `way` is one of `WAYS`."""

    session_id: str
    way: str


Effect = (
    Free | Freeze | Thaw | Release | AbortPeer | MoveEnded | Gone
    | SendFrames | SendTransfer | SendActivated | SendActivateRefused | SendCancelled
)  # fmt: skip
