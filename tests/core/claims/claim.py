"""A number that the field claims, and what became of it here: computed, measured by a bench, or not reproduced."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One figure that our formulas come to: what it is, in which unit, beside what is claimed; `within` is the
    relative tolerance.
    """

    name: str
    unit: str
    claimed: float
    compute: Callable[[], float]
    within: float = 0.0
    at_least: bool = False
    at_most: bool = False

    def holds(self, found: float) -> bool:
        """Whether what was computed is what is claimed."""
        if self.at_least:
            return found >= self.claimed
        if self.at_most:
            return found <= self.claimed
        return abs(found - self.claimed) <= self.within * abs(self.claimed)


@dataclass(frozen=True)
class Bench:
    """Where a measurement of it is: the script that makes it, the result's file, its keys (dots lead inside)."""

    script: str
    result: str
    keys: tuple[str, ...]
    says: str


@dataclass(frozen=True)
class Claim:
    """A claim and its source. One of `figures`, `bench` and `not_reproduced` at least; a part may hold and another
    not be reproduced.
    """

    id: str
    claim: str
    source: str
    figures: tuple[Figure, ...] = ()
    bench: Bench | None = None
    not_reproduced: str = ""
    remark: str = ""
