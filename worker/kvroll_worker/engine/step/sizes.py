"""How many tokens steps compute: counts by size, for the histogram that dashboards draw."""

from bisect import bisect_left
from typing import TypedDict

from kvroll_worker.request import STEP_TOKENS


class Sizes(TypedDict):
    """As `EngineStats` has them."""

    step_sizes: tuple[int, ...]
    step_tokens_total: int


class StepSizes:
    """Counts steps."""

    def __init__(self) -> None:
        self._counts = [0] * (len(STEP_TOKENS) + 1)
        self._tokens = 0

    def count(self, tokens: int) -> None:
        """A step that computed so many."""
        self._counts[bisect_left(STEP_TOKENS, tokens)] += 1
        self._tokens += tokens

    def figures(self) -> Sizes:
        """The counts as they stand."""
        return {"step_sizes": tuple(self._counts), "step_tokens_total": self._tokens}
