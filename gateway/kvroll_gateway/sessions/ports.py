"""What the session table needs of the workers, so that it can be tested without a socket."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from kvroll_gateway.sessions.messages import Send


@dataclass(frozen=True)
class NoWorker:
    """Why no worker takes a session now. `known_model`: False if no worker of this model was ever seen."""

    known_model: bool
    message: str


class Workers(Protocol):
    """The workers as the table sees them."""

    def send(self, send: Send) -> None:
        """Puts the message on the instance's stream; drops it if there is none."""

    def place(self, model: str, exclude: Collection[str], load: Mapping[str, int]) -> str | NoWorker:
        """The instance that gets a new session of `model`; `load` counts the sessions of each instance."""

    def reachable(self, instance_id: str) -> bool:
        """True while the instance has a stream, or lost it too recently to count as lost."""

    @property
    def precisions(self) -> Mapping[str, tuple[str, str]]:
        """(weights, kv_cache) of each instance."""
