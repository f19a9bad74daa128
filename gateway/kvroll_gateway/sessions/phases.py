"""The words of a session's ownership: its phases, and what its state machine holds and puts out."""

from dataclasses import dataclass
from enum import StrEnum

from kvroll.v1 import ownership_pb2 as own
from kvroll_core.epoch import Epoch
from kvroll_gateway.sessions.messages import Send


class OwnershipPhase(StrEnum):
    """Where a session stands at its gateway."""

    SEEKING = "seeking"  # needs a worker: `placed` names one
    SUBMITTED = "submitted"  # a worker was asked to begin it
    RUNNING = "running"
    TRANSFERRING = "transferring"  # Activate is on its way to the target
    REPLAYING = "replaying"  # a worker was asked to go on from the ids
    FINISHED = "finished"
    CANCELLED = "cancelled"  # the client went
    FAILED = "failed"


TERMINAL = frozenset({OwnershipPhase.FINISHED, OwnershipPhase.CANCELLED, OwnershipPhase.FAILED})


@dataclass(frozen=True)
class Note:
    """Something to count: `replayed`, `moved` (label: the verdict), `resumed`, `stale` or `duplicate`."""

    what: str
    label: str = ""
    count: int = 1


@dataclass(frozen=True)
class Failure:
    """Why a session ended without its last token. `code` is for machines, `message` for people."""

    code: str
    message: str


@dataclass(frozen=True)
class Attempt:
    """A Submit or Replay that is not answered."""

    instance_id: str
    epoch: Epoch


@dataclass(frozen=True)
class Move:
    """A TransferOwnership that is not answered: Activate goes to `target` at `epoch`."""

    request: own.TransferOwnership
    source: str
    epoch: Epoch

    @property
    def target(self) -> str:
        return self.request.target.instance_id


Output = Send | Note
