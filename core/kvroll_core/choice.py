"""Which way on a drained session takes: a pure choice over the policy, the session and the targets as they are now.

One rule for two readers: the worker that drains, and the price of a rollout before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvroll_core.compat import Descriptor, MovePolicy, verdict
from kvroll_core.formats import PAGE_TOKENS
from kvroll_core.words import VerdictKind, WayOn

KINDS = {WayOn.EXACT: VerdictKind.EXACT, WayOn.CONVERT: VerdictKind.CONVERT, WayOn.REPLAY: VerdictKind.REPLAY}
_PREFILL_SPEEDUP = 8
"""R: a prefilled token costs at most an eighth of a decode step; only the choice between moving and finishing hangs on it."""
ASSUMED_PAGE_SECONDS = 0.002
"""The time to move one page, until a worker has measured its own moves."""


@dataclass(frozen=True)
class Target:
    """A worker that may take sessions; `name` is its instance."""

    name: str
    descriptor: Descriptor
    same_revision: bool
    accepting: bool
    page_bytes: int


@dataclass(frozen=True)
class Facts:
    """One session: `num_tokens` so far, the most it may still generate, what it was through."""

    num_tokens: int
    max_remaining_tokens: int
    reproducible: bool
    same_revision_moves: int


@dataclass(frozen=True)
class Policy:
    """What a drain may do, in order of preference."""

    allow: tuple[WayOn, ...]
    kv_across_weights: bool = False
    evacuation: bool = False


@dataclass(frozen=True)
class Costs:
    """Measured by the worker; 0 is not known yet. Bytes are those that one move brings to its target."""

    step_seconds: float
    move_bytes_per_second: float = 0.0
    page_tokens: int = PAGE_TOKENS

    def page_seconds(self, page_bytes: int) -> float:
        """Seconds to move a page of that size."""
        return page_bytes / self.move_bytes_per_second if self.move_bytes_per_second else ASSUMED_PAGE_SECONDS


@dataclass(frozen=True)
class Choice:
    """`target` is set for the three moves. `why_not` holds, for people, why each target was passed over."""

    way: WayOn | None
    target: Target | None = None
    why_not: tuple[str, ...] = ()


def choose(facts: Facts, source: Descriptor, targets: Sequence[Target], policy: Policy, costs: Costs) -> Choice:
    """The first allowed way on that is open now; None as the way means wait for other targets.

    FinishSoon holds where the rest of the session takes no longer than its move would: it needs a target to compare with.
    """
    offers, why_not = _offers(facts, source, targets, policy)
    for way in policy.allow:
        if way is WayOn.FINISH_SOON and offers and _finishes_sooner(facts, min(offers, key=_rank), costs):
            return Choice(way)
        if way in KINDS:
            for kind, target in offers:
                if kind is KINDS[way]:
                    return Choice(way, target)
        if way is WayOn.FINISH:
            return Choice(way, None, why_not)
        if way is WayOn.DROP and not set(policy.allow) & set(KINDS):
            return Choice(way, None, why_not)
    return Choice(None, None, why_not)


def _offers(
    facts: Facts, source: Descriptor, targets: Sequence[Target], policy: Policy
) -> tuple[list[tuple[VerdictKind, Target]], tuple[str, ...]]:  # fmt: skip
    """What each accepting target would do with the session, and why the others would not."""
    allowed = frozenset(KINDS[way] for way in policy.allow if way in KINDS)
    asked = MovePolicy(
        allowed, policy.kv_across_weights, facts.reproducible, facts.num_tokens + facts.max_remaining_tokens
    )
    offers: list[tuple[VerdictKind, Target]] = []
    why_not: list[str] = []
    leaves_revision = not policy.evacuation and any(not target.same_revision for target in targets)
    for target in targets:
        decided = verdict(source, target.descriptor, asked)
        again = (
            decided.kind is VerdictKind.EXACT
            and target.same_revision
            and facts.same_revision_moves >= 1
            and not policy.evacuation
        )
        dearer = decided.kind is not VerdictKind.EXACT and target.same_revision and leaves_revision
        if not target.accepting:
            why_not.append(f"{target.name}: takes no moves now")
        elif dearer:
            why_not.append(f"{target.name}: of the same revision, which the session must leave; only Exact is worth it")
        elif again:
            why_not.append(f"{target.name}: of the same revision, and the session was moved to such a one before")
        elif decided.kind is VerdictKind.REFUSE:
            why_not.append(f"{target.name}: {'; '.join(decided.reasons)}")
        else:
            offers.append((decided.kind, target))
    return offers, tuple(why_not)


def _rank(offer: tuple[VerdictKind, Target]) -> int:
    return list(KINDS.values()).index(offer[0])


def _finishes_sooner(facts: Facts, offer: tuple[VerdictKind, Target], costs: Costs) -> bool:
    if offer[0] is VerdictKind.REPLAY:
        move_seconds = facts.num_tokens * costs.step_seconds / _PREFILL_SPEEDUP
    else:
        move_seconds = -(-facts.num_tokens // costs.page_tokens) * costs.page_seconds(offer[1].page_bytes)
    return facts.max_remaining_tokens * costs.step_seconds < move_seconds
