"""What may become of the sessions that a drain finds."""

from dataclasses import dataclass

from kvroll_core.words import DEFAULT_ALLOW


@dataclass(frozen=True)
class SessionPolicy:
    """The spec's word on sessions; a WorkerDrain keeps it as it was when the drain began.

    `parallel` are the moves at a time in the whole pool, `per_worker` those from one worker. `deadline_seconds` is how long a drain may go
    on without a session moved or ended; then `drops_late` says whether what is left is let go, and counted as lost.
    """

    allow: tuple[str, ...] = tuple(DEFAULT_ALLOW)
    kv_across_weights: bool = False
    parallel: int = 5
    per_worker: int = 2
    bytes_per_second: int | None = None
    max_downtime_ms: int = 50
    deadline_seconds: int = 2700
    drops_late: bool = False
