"""Whether looking prefixes up pays: decided from the hit rate in tokens over windows of queried tokens. No clock, no pages."""

from enum import StrEnum


class CacheMode(StrEnum):
    """`prefixCache` of a pool: Auto measures, On and Off do not."""

    AUTO = "Auto"
    ON = "On"
    OFF = "Off"


class CacheSwitch:
    """Auto turns the cache off after a window with too few hits, and on again for a trial window after a pause.

    Both are counted in tokens of prompts that were admitted, not in seconds: an idle worker learns nothing. Looking up and keeping costs
    one or two microseconds a token (bench/paging.py), computing a token a hundred times that on a fast device, so one hit in a hundred
    is where it begins to pay.
    """

    WINDOW_TOKENS = 32768
    PAUSE_TOKENS = 8 * WINDOW_TOKENS
    MIN_HIT_RATE = 0.01

    def __init__(self, mode: CacheMode) -> None:
        self.mode = mode
        self.on = mode is not CacheMode.OFF
        self.switches_total = 0
        self.last_hit_rate = 0.0
        self._queries = self._hits = 0

    def record(self, queries: int, hits: int) -> bool:
        """Counts the tokens of one look-up (or, while off, of one that was left out); True if the cache was turned on or off by it."""
        if self.mode is not CacheMode.AUTO:
            return False
        self._queries += queries
        self._hits += hits
        if self._queries < (self.WINDOW_TOKENS if self.on else self.PAUSE_TOKENS):
            return False
        switch = True
        if self.on:
            self.last_hit_rate = self._hits / self._queries
            switch = self.last_hit_rate < self.MIN_HIT_RATE
        self._queries = self._hits = 0
        if switch:
            self.on = not self.on
            self.switches_total += 1
        return switch

    def describe(self) -> dict[str, object]:
        """What the last switch did and why, for a log line."""
        rate, least = round(self.last_hit_rate, 4), self.MIN_HIT_RATE
        why = "a trial after a pause" if self.on else f"hit rate {rate} of tokens is below {least}"
        return {
            "on": self.on,
            "why": why,
            "next_decision_in_tokens": self.WINDOW_TOKENS if self.on else self.PAUSE_TOKENS,
        }
