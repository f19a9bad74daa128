"""How fast moves may send, and when a pre-copy round is the last one."""

MAX_ROUNDS = 5
LAST_PAGES = 2
"""With this few pages left there is nothing to gain from another round."""


class TokenBucket:
    """Bytes a second for all moves of a worker together; 0 is unlimited. Time is a value."""

    def __init__(self, bytes_per_second: int = 0) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    def set_rate(self, bytes_per_second: int) -> None:
        """Takes a new rate; what was already granted stays granted."""
        self._rate = bytes_per_second

    def delay_seconds(self, num_bytes: int, now: float) -> float:
        """Grants `num_bytes` and says how long to wait before sending them."""
        if self._rate <= 0:
            return 0.0
        start = max(now, self._free_at)
        self._free_at = start + num_bytes / self._rate
        return start - now


def another_round(
    rounds_done: int, pages_left: int, page_bytes: int, bytes_per_second: float, max_downtime_seconds: float
) -> bool:
    """Whether to copy once more while the session decodes on, or to freeze it and send what is left."""
    if rounds_done == 0:
        return pages_left > 0
    if rounds_done >= MAX_ROUNDS or pages_left <= LAST_PAGES:
        return False
    return bytes_per_second <= 0 or (pages_left + 1) * page_bytes / bytes_per_second >= max_downtime_seconds
