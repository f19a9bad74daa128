"""What the session table needs of the workers, so that it can be tested without a socket."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kvroll_gateway.sessions.messages import Send


class Loss(StrEnum):
    """Why a worker counts as lost."""

    REFUSED = "refused"  # its port takes no connection
    SILENT = "silent"  # connected or not, nothing is heard
    STUCK = "stuck"  # it answers, but its engine makes no progress
    RESTARTED = "restarted"  # another process answers at its address
    REMOVED = "removed"  # the cluster took it away


@dataclass(frozen=True)
class Seeker:
    """A session that needs a worker.

    `exclude`: instances that refused or lost it. `suspect`: workers died under it. `urgent`: it has waited long enough for a worker that is
    not the last healthy one.
    """

    model: str
    exclude: Collection[str] = ()
    suspect: bool = False
    urgent: bool = False


@dataclass(frozen=True)
class InstanceLoad:
    """Sessions of each instance, and how many of them are suspects."""

    sessions: Mapping[str, int] = field(default_factory=dict)
    suspects: Mapping[str, int] = field(default_factory=dict)

    def innocents(self, instance_id: str) -> int:
        return self.sessions.get(instance_id, 0) - self.suspects.get(instance_id, 0)


@dataclass(frozen=True)
class NoWorker:
    """Why no worker takes a session now.

    `known_model`: False if no worker of this model was ever seen. `quarantined`: there is one, which the session shall not have yet.
    """

    known_model: bool
    message: str
    quarantined: bool = False


class WorkersPort(Protocol):
    """The workers as the table sees them."""

    def send(self, send: Send) -> None:
        """Puts the message on the instance's stream; drops it if there is none."""

    def place(self, seeker: Seeker, load: InstanceLoad) -> str | NoWorker:
        """The instance that gets the session."""

    def reachable(self, instance_id: str) -> bool:
        """True while the instance has a stream, or lost it too recently to count as lost."""

    @property
    def precisions(self) -> Mapping[str, tuple[str, str]]:
        """(weights, kv_cache) of each instance."""
