"""How long to wait after a failure: longer each time, never at the same moment as everybody else."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Backoff:
    """Doubles from `first_seconds` up to `most_seconds`; each delay is drawn from its upper half."""

    first_seconds: float = 1.0
    most_seconds: float = 30.0
    draw: Callable[[float, float], float] = random.uniform
    failures: int = 0

    def next_seconds(self, at_least_seconds: float = 0.0) -> float:
        """The delay after one more failure, and not before the server is ready to be asked again."""
        whole = min(self.most_seconds, self.first_seconds * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(at_least_seconds, 0.0) + self.draw(whole / 2, whole)

    def reset(self) -> None:
        """It went well."""
        self.failures = 0
