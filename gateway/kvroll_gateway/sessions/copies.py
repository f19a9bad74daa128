"""Copies of one session that must not live on: where they are and from which epoch they are to be cancelled."""

from kvroll_core.epoch import Epoch
from kvroll_gateway.sessions import messages
from kvroll_gateway.sessions.messages import Send


class Copies:
    """Remembers old copies until their worker confirmed the Cancel or is certainly gone.

    `keep` only notes a copy that may still be needed (nothing else runs yet); `condemn` begins to cancel it (rule 6: only after the
    replacement took).
    """

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._kept: dict[str, Epoch] = {}
        self._condemned: dict[str, Epoch] = {}

    @property
    def kept(self) -> dict[str, Epoch]:
        return dict(self._kept)

    @property
    def settled(self) -> bool:
        return not self._condemned

    def keep(self, instance_id: str, epoch: Epoch) -> None:
        self._kept[instance_id] = max(epoch, self._kept.get(instance_id, epoch))

    def recover(self, instance_id: str) -> None:
        """The kept copy is the session's owner again."""
        self._kept.pop(instance_id, None)

    def condemn(self, instance_id: str, epoch: Epoch, reason: str) -> list[Send]:
        self._condemned[instance_id] = max(epoch, self._condemned.get(instance_id, epoch))
        return self.repeat(instance_id, reason)

    def condemn_kept(self, spare_instance_id: str | None, reason: str) -> list[Send]:
        """Cancels all kept copies but the one on `spare_instance_id`, which a higher epoch has replaced in place."""
        kept, self._kept = self._kept, {}
        sends: list[Send] = []
        for instance_id, epoch in kept.items():
            if instance_id != spare_instance_id:
                sends += self.condemn(instance_id, epoch, reason)
        return sends

    def repeat(self, instance_id: str | None = None, reason: str = "superseded") -> list[Send]:
        """The Cancels that are not confirmed, of one worker or of all."""
        return [
            messages.cancel(instance, self._session_id, epoch, reason)
            for instance, epoch in self._condemned.items()
            if instance_id in (None, instance)
        ]

    def confirm(self, instance_id: str, epoch: Epoch) -> None:
        if instance_id in self._condemned and epoch >= self._condemned[instance_id]:
            del self._condemned[instance_id]

    def forget(self, instance_id: str) -> None:
        """The worker instance is certainly gone, and its copy with it."""
        self._kept.pop(instance_id, None)
        self._condemned.pop(instance_id, None)
