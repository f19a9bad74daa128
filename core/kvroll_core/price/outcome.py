"""What becomes of sessions in a rollout, as values."""

from dataclasses import dataclass

from kvroll_core.words import WayOn


@dataclass(frozen=True)
class WayPrice:
    """Sessions that take one way on; `way` None: none is open to them. `hops`: of these, sessions that go to another worker of the old
    revision, which will be drained of them again. `longest_tokens`: the most that one of them still generates.
    """

    way: WayOn | None
    sessions: int = 0
    bytes: int = 0
    tokens: int = 0
    hops: int = 0
    longest_tokens: int = 0

    def plus(self, other: "WayPrice") -> "WayPrice":
        """Both together."""
        return WayPrice(
            self.way,
            self.sessions + other.sessions,
            self.bytes + other.bytes,
            self.tokens + other.tokens,
            self.hops + other.hops,
            max(self.longest_tokens, other.longest_tokens),
        )


@dataclass(frozen=True)
class GroupOutcome:
    """What becomes of the sessions that a group's drain finds, `drained_at` seconds after the rollout began."""

    ways: tuple[WayPrice, ...]
    drained_at: float = 0.0

    @property
    def held(self) -> int:
        """Sessions that the drain finds."""
        return sum(w.sessions for w in self.ways)
