"""How long a session shall be: pure, so that no machine's speed is in it."""

from dataclasses import dataclass
from typing import Protocol

_SPREAD = (0.7, 1.0, 0.85, 1.3, 1.15)
_FIRST_SPREAD = (0.5, 1.0, 0.75, 1.5, 1.25)
"""Sessions that begin together must not end together; their mean is 1."""


class Pace(Protocol):
    """Chooses the tokens of a session."""

    def tokens(self, number: int, *, is_first: bool, tokens_per_second: float | None) -> int:
        """Tokens of the `number`-th session of the wave; the rate is that of a session of this wave now, None before it is known."""


@dataclass(frozen=True)
class Fixed:
    """Sizes by the book: those of the first sessions in turn, and that of each which replaces a finished one."""

    first: tuple[int, ...]
    replacement: int

    def tokens(self, number: int, *, is_first: bool, tokens_per_second: float | None) -> int:
        return self.first[number % len(self.first)] if is_first else self.replacement


@dataclass(frozen=True)
class Lasting:
    """Sessions that last about `seconds` on whatever machine this is, by the rate at which tokens come just now.

    Not under `fewest`, which keeps a session worth a move where tokens are slow, and not over `most`, which keeps all of them inside the
    KV memory where tokens are fast: there a session ends sooner, and the next one takes its place.
    """

    seconds: float
    fewest: int
    most: int

    def tokens(self, number: int, *, is_first: bool, tokens_per_second: float | None) -> int:
        spread = _FIRST_SPREAD if is_first else _SPREAD
        wanted = self.fewest if tokens_per_second is None else tokens_per_second * self.seconds
        share = spread[number % len(spread)]
        return max(1, round(min(max(wanted, self.fewest), self.most) * share))
