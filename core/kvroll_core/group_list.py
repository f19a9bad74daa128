"""Groups of a pool as short text, `0-4,9,7`: an object's annotations hold 256 KiB, and a pool may have ten thousand groups."""

from collections.abc import Iterable

MOST_GROUPS = 100_000
"""More than a pool may have; a longer list was written by nobody who means it."""


def packed(groups: Iterable[int]) -> str:
    """The groups in their order; runs of consecutive ascending ones as `first-last`."""
    runs: list[list[int]] = []
    for group in groups:
        if runs and group == runs[-1][1] + 1:
            runs[-1][1] = group
        else:
            runs.append([group, group])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def unpacked(text: str) -> tuple[int, ...]:
    """What `packed` wrote.

    Raises:
        ValueError: it is not of that form, or names a group that no pool can have.
    """
    groups: list[int] = []
    for run in text.split(",") if text else []:
        first, dash, last = run.partition("-")
        low, high = _group(first), _group(last if dash else first)
        if high < low or len(groups) + high - low >= MOST_GROUPS:
            raise ValueError(f"expected groups as 0-4,9, found the run {run[:40]!r}")
        groups += range(low, high + 1)
    return tuple(groups)


def _group(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 6 or int(text) >= MOST_GROUPS:
        raise ValueError(f"expected a group from 0 to {MOST_GROUPS - 1}, found {text[:40]!r}")
    return int(text)
