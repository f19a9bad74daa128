"""The highest epoch seen of every session: what lets a late message of an old owner do nothing (docs/design.md §7 rule 2)."""

from collections import OrderedDict

from kvroll_core.epoch import Epoch


class Fence:
    """Remembers the highest epoch of each session, also after its copy is gone.

    Live sessions are always remembered; tombstones are bounded, the oldest goes first.
    """

    def __init__(self, max_tombstones: int = 65536) -> None:
        self._max_tombstones = max_tombstones
        self._live: dict[str, Epoch] = {}
        self._tombstones: OrderedDict[str, Epoch] = OrderedDict()

    def highest(self, session_id: str) -> Epoch | None:
        """The highest epoch seen, None for a session that is unknown or forgotten."""
        return self._live.get(session_id) or self._tombstones.get(session_id)

    def admits(self, session_id: str, epoch: Epoch) -> bool:
        """Whether a message at `epoch` may act on the session: nothing higher was seen."""
        highest = self.highest(session_id)
        return highest is None or epoch >= highest

    def admits_new(self, session_id: str, epoch: Epoch) -> bool:
        """Whether a *new* copy may begin at `epoch`: only above everything seen, else a repeated request would run twice."""
        highest = self.highest(session_id)
        return highest is None or epoch > highest

    def hold(self, session_id: str, epoch: Epoch) -> None:
        """Raises the session to `epoch` and keeps it as live; never lowers it."""
        self._live[session_id] = self._raised(session_id, epoch)
        self._tombstones.pop(session_id, None)

    def bury(self, session_id: str, epoch: Epoch | None = None) -> None:
        """The copy is gone: keeps the highest epoch (at least `epoch`) as a tombstone."""
        highest = self.highest(session_id) if epoch is None else self._raised(session_id, epoch)
        self._live.pop(session_id, None)
        if highest is None:
            return
        self._tombstones[session_id] = highest
        self._tombstones.move_to_end(session_id)
        while len(self._tombstones) > self._max_tombstones:
            self._tombstones.popitem(last=False)

    def _raised(self, session_id: str, epoch: Epoch) -> Epoch:
        highest = self.highest(session_id)
        return epoch if highest is None else max(highest, epoch)
