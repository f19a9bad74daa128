"""Traffic as the numbers that decide: sessions at once, tokens they hold, how much of their prompts they share."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import ceil

from kvroll_core.precision.formats import PAGE_TOKENS


class TraceError(ValueError):
    """A trace that does not tell what is needed; the message names it."""


@dataclass(frozen=True)
class TracedRequest:
    """One request of a trace: when it came and how long it took (seconds, None: not told), its tokens, its prompt in
    units.

    `prompt` is what prompts are compared by, in whole pages of `page_units` units that stand for `page_tokens`
    tokens: token ids (32 a page), bytes of text (four a token, 128 a page), or the ids of hashed blocks (one a page).
    """

    arrival_seconds: float
    duration_seconds: float | None
    prompt_tokens: int
    output_tokens: int
    prompt: Sequence[Hashable]
    page_units: int = PAGE_TOKENS
    page_tokens: int = PAGE_TOKENS

    @property
    def tokens(self) -> int:
        """Tokens that it holds at its end."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True)
class Lengths:
    """Tokens: median, 95th percentile, most, mean."""

    p50: int
    p95: int
    most: int
    mean: float

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "Lengths":
        """Of at least one length, by nearest rank."""
        ranked = sorted(lengths)
        p50, p95 = (ranked[max(0, ceil(share * len(ranked)) - 1)] for share in (0.5, 0.95))
        return cls(p50, p95, ranked[-1], sum(ranked) / len(ranked))


@dataclass(frozen=True)
class Profile:
    """A traffic; None where its source does not tell.

    `overlap`: share of prompt tokens that an earlier prompt began with, in whole pages: the hit rate of a prefix
    cache that forgets nothing. `distinct_tokens`: what such a cache holds in the end. `peak_tokens`: tokens held at
    the busiest moment, each session at its full length.
    """

    requests: int | None
    peak_sessions: float | None
    peak_tokens: float | None
    overlap: float | None
    distinct_tokens: int | None = None
    prompt: Lengths | None = None
    output: Lengths | None = None
    total: Lengths | None = None


def profile_of(requests: Sequence[TracedRequest]) -> Profile:
    """The profile of a trace. Without durations the peak is not told.

    Raises:
        TraceError: there is no request.
    """
    if not requests:
        raise TraceError("expected requests in the trace, found none")
    arrived = sorted(requests, key=lambda r: r.arrival_seconds)
    # A trace of lengths alone does not tell what prompts share.
    overlap, distinct = _overlap(arrived) if any(r.prompt for r in arrived) else (None, None)
    peak = _peak(arrived)
    return Profile(
        requests=len(requests),
        peak_sessions=peak[0] if peak else None,
        peak_tokens=peak[1] if peak else None,
        overlap=overlap,
        distinct_tokens=distinct,
        prompt=Lengths.of([r.prompt_tokens for r in requests]),
        output=Lengths.of([r.output_tokens for r in requests]),
        total=Lengths.of([r.tokens for r in requests]),
    )


def _overlap(arrived: Sequence[TracedRequest]) -> tuple[float, int]:
    """Share of prompt tokens found in the tree of earlier prompts, and the tokens of that tree.

    A page counts when all pages before it were the same. The last token of a prompt is always computed, so a prompt
    is never found whole.
    """
    children: dict[tuple[int, tuple[Hashable, ...]], int] = {}
    found = total = distinct = 0
    for request in arrived:
        node, hit, known = 0, 0, True
        for start in range(0, len(request.prompt) - request.page_units + 1, request.page_units):
            key = (node, tuple(request.prompt[start : start + request.page_units]))
            known = known and key in children
            if key not in children:
                children[key] = len(children) + 1
                distinct += request.page_tokens
            node = children[key]
            hit += request.page_tokens if known else 0
        total += request.prompt_tokens
        found += min(hit, max(request.prompt_tokens - 1, 0) // request.page_tokens * request.page_tokens)
    return (found / total if total else 0.0), distinct


def _peak(arrived: Sequence[TracedRequest]) -> tuple[int, int] | None:
    """Most sessions at once, and most tokens at once; one that ends when another begins is gone."""
    changes: list[tuple[float, int, int]] = []
    for request in arrived:
        if request.duration_seconds is None:
            return None
        end = request.arrival_seconds + request.duration_seconds
        changes += [(request.arrival_seconds, 1, request.tokens), (end, -1, -request.tokens)]
    sessions = tokens = most_sessions = most_tokens = 0
    for _, one, held in sorted(changes, key=lambda change: (change[0], change[1])):
        sessions, tokens = sessions + one, tokens + held
        most_sessions, most_tokens = max(most_sessions, sessions), max(most_tokens, tokens)
    return most_sessions, most_tokens
