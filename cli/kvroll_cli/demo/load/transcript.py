"""What one client received of one session, and what that says: pure, so that the arithmetic of the report is tested without a server."""

import math
from dataclasses import dataclass, field
from itertools import pairwise

import xxhash


@dataclass(frozen=True)
class TokenArrival:
    """One token as received: the index and epoch of its SSE id, its id, and when it came (seconds on a monotonic clock)."""

    index: int
    epoch: str
    token_id: int
    seconds: float


@dataclass
class Transcript:
    """One session at its client. `record_tokens` and `record_digest` are the worker's own record, sent with the last chunk."""

    prompt: str
    started_seconds: float = 0.0
    ended_seconds: float | None = None
    asked_tokens: int = 0
    arrivals: list[TokenArrival] = field(default_factory=list)
    text: str = ""
    workers: list[str] = field(default_factory=list)
    """The worker instances that have sent, in order, as the gateway names them."""
    finish_reason: str | None = None
    record_tokens: int | None = None
    record_digest: str | None = None
    session_id: str | None = None
    precision_epochs: list[dict[str, object]] = field(default_factory=list)
    error: str | None = None

    @property
    def is_lost(self) -> bool:
        """True when the stream ended without a finish: an error, or a connection that simply closed."""
        return self.finish_reason is None

    @property
    def is_streaming(self) -> bool:
        """True between the first token and the end."""
        return bool(self.arrivals) and self.ended_seconds is None

    def num_moves(self) -> int:
        """How often the session went to another worker so far."""
        return sum(a != b for a, b in pairwise(self.workers))

    def num_duplicated(self) -> int:
        """Tokens whose index the client had already seen."""
        return len(self.arrivals) - len({a.index for a in self.arrivals})

    def num_missing(self) -> int:
        """Tokens that the worker says it generated and the client never saw; for a lost session, holes before the last index seen."""
        seen = {a.index for a in self.arrivals}
        last = max(seen, default=-1) + 1
        return max(self.record_tokens or 0, last) - len(seen)

    def digest(self) -> str:
        """XXH3-128 hex over the little-endian uint32 ids in index order: equals `record_digest` when both sides hold the same tokens."""
        by_index = {a.index: a.token_id for a in self.arrivals}
        return xxhash.xxh3_128_hexdigest(b"".join(by_index[i].to_bytes(4, "little") for i in sorted(by_index)))

    def is_wrong(self) -> bool:
        """True when a finished session's tokens are not those of the worker's record."""
        return not self.is_lost and self.digest() != self.record_digest

    def stalls(self) -> list[tuple[float, float]]:
        """(when it ended, milliseconds) of the gap at every change of epoch: what the client felt of a move or a replay."""
        return [(b.seconds, (b.seconds - a.seconds) * 1000) for a, b in pairwise(self.arrivals) if a.epoch != b.epoch]

    def gaps(self) -> list[tuple[float, float]]:
        """(when it ended, milliseconds) of the gap before every token but the first."""
        return [(b.seconds, (b.seconds - a.seconds) * 1000) for a, b in pairwise(self.arrivals)]


def percentile(values: list[float], percent: float) -> float | None:
    """Nearest-rank percentile; None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(1, math.ceil(percent / 100 * len(ordered))) - 1]
