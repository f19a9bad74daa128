"""The fencing triple of a session's owner."""

from typing import NamedTuple, Self


class Epoch(NamedTuple):
    """Orders the owners of one session: only the holder of the highest epoch may emit (docs/design.md §7).

    `reign` is raised only by Locate, `step` by moves, replays and RESUME; `gateway_id` breaks ties between reigns.
    """

    reign: int
    gateway_id: str
    step: int

    def next_step(self) -> Self:
        """The epoch of the next owner under the same gateway."""
        return self._replace(step=self.step + 1)

    def __str__(self) -> str:
        return f"{self.reign}-{self.gateway_id}-{self.step}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads what `str()` wrote.

        Raises:
            ValueError: the text is not `<reign>-<gateway id>-<step>`.
        """
        reign, _, rest = text.partition("-")
        gateway_id, _, step = rest.rpartition("-")
        if not (reign.isdecimal() and step.isdecimal() and gateway_id):
            raise ValueError(f"expected an epoch `<reign>-<gateway id>-<step>`, found {text!r}")
        return cls(int(reign), gateway_id, int(step))
