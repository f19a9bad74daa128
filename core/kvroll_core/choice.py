"""Which way on a drained session takes: a pure choice over the policy, the session and the targets as they are now.

One rule for two readers: the worker that drains, and the price of a rollout before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvroll_core.compat import Descriptor, MovePolicy, verdict
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.words import VerdictKind, WayOn

KINDS = {WayOn.EXACT: VerdictKind.EXACT, WayOn.CONVERT: VerdictKind.CONVERT, WayOn.REPLAY: VerdictKind.REPLAY}
_PREFILL_SPEEDUP = 8
"""R: a prefilled token costs at most an eighth of a decode step: until a worker has measured its own, to choose between moving and
finishing."""
ASSUMED_PAGE_SECONDS = 0.002
"""The time to move one page, until a worker has measured its own moves."""


@dataclass(frozen=True)
class MoveTarget:
    """A worker that may take sessions; `name` is its instance."""

    name: str
    descriptor: Descriptor
    same_revision: bool
    accepting: bool
    page_bytes: int


@dataclass(frozen=True)
class SessionFacts:
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
    prefill_tokens_per_second: float = 0.0

    def transfer_seconds(self, num_tokens: int, page_bytes: int) -> float | None:
        """Seconds to bring the pages of so many tokens over; None without a measured rate."""
        pages = -(-num_tokens // self.page_tokens)
        return pages * page_bytes / self.move_bytes_per_second if self.move_bytes_per_second > 0 else None

    def recompute_seconds(self, num_tokens: int) -> float | None:
        """Seconds for a target like this worker to compute so many tokens; None without a measured rate."""
        return num_tokens / self.prefill_tokens_per_second if self.prefill_tokens_per_second > 0 else None

    def page_seconds(self, page_bytes: int) -> float:
        """Seconds to move a page of that size."""
        return page_bytes / self.move_bytes_per_second if self.move_bytes_per_second else ASSUMED_PAGE_SECONDS


@dataclass(frozen=True)
class MoveChoice:
    """`target` is set for the three moves. `why_not` holds, for people, why each target was passed over, and `reason` why it is this
    move where the policy allows a transfer and a replay both.
    """

    way: WayOn | None
    target: MoveTarget | None = None
    why_not: tuple[str, ...] = ()
    reason: str = ""


def choose(
    facts: SessionFacts, source: Descriptor, targets: Sequence[MoveTarget], policy: Policy, costs: Costs
) -> MoveChoice:
    """The first allowed way on that is open now; None as the way means wait for other targets.

    Where a target could be sent the pages and could recompute them too, and the policy allows both, the measured rates decide which; the
    policy's order does while one of them is not measured.

    FinishSoon holds where the rest of the session takes no longer than its move would: it needs a target to compare with.
    """
    offers, why_not = _offers(facts, source, targets, policy)
    for way in policy.allow:
        if way is WayOn.FINISH_SOON and offers and _finishes_sooner(facts, min(offers, key=_rank), costs):
            return MoveChoice(way)
        if way in KINDS:
            for kind, target in offers:
                both = _allows_both(kind, facts, target, targets, policy)
                if kind is KINDS[way] or (both and way is WayOn.REPLAY):
                    return _cheaper(way, kind, target, facts, costs) if both else MoveChoice(way, target)
        if way is WayOn.FINISH:
            return MoveChoice(way, None, why_not)
        if way is WayOn.DROP and not set(policy.allow) & set(KINDS):
            return MoveChoice(way, None, why_not)
    return MoveChoice(None, None, why_not)


def _offers(
    facts: SessionFacts, source: Descriptor, targets: Sequence[MoveTarget], policy: Policy
) -> tuple[list[tuple[VerdictKind, MoveTarget]], tuple[str, ...]]:  # fmt: skip
    """What each accepting target would do with the session, and why the others would not."""
    allowed = frozenset(KINDS[way] for way in policy.allow if way in KINDS)
    asked = MovePolicy(
        allowed, policy.kv_across_weights, facts.reproducible, facts.num_tokens + facts.max_remaining_tokens
    )
    offers: list[tuple[VerdictKind, MoveTarget]] = []
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


def _allows_both(
    kind: VerdictKind, facts: SessionFacts, target: MoveTarget, targets: Sequence[MoveTarget], policy: Policy
) -> bool:  # fmt: skip
    """True if a target that would take the session's pages may as well be given its ids alone."""
    if kind is VerdictKind.REPLAY or WayOn.REPLAY not in policy.allow or facts.reproducible:
        return False
    leaves_revision = not policy.evacuation and any(not other.same_revision for other in targets)
    return not (target.same_revision and leaves_revision)  # there it is moved again, and only pages are worth it


def _cheaper(way: WayOn, kind: VerdictKind, target: MoveTarget, facts: SessionFacts, costs: Costs) -> MoveChoice:
    """The transfer or the replay, whichever takes less time; `way` where that is not known."""
    transfer = costs.transfer_seconds(facts.num_tokens, target.page_bytes)
    recompute = costs.recompute_seconds(facts.num_tokens)
    if transfer is None or recompute is None:
        unknown = [
            name for name, found in (("bytes/s of moves", transfer), ("prefill tokens/s", recompute)) if found is None
        ]
        return MoveChoice(way, target, reason=f"by the policy's order: {' and '.join(unknown)} not measured yet")
    cheaper = WayOn.REPLAY if recompute < transfer else next(one for one, sent in KINDS.items() if sent is kind)
    return MoveChoice(
        cheaper, target, reason=f"by measured rates: {transfer:.3g} s to move its pages, {recompute:.3g} s to recompute"
    )


def _rank(offer: tuple[VerdictKind, MoveTarget]) -> int:
    return list(KINDS.values()).index(offer[0])


def _finishes_sooner(facts: SessionFacts, offer: tuple[VerdictKind, MoveTarget], costs: Costs) -> bool:
    if offer[0] is VerdictKind.REPLAY:
        measured = costs.recompute_seconds(facts.num_tokens)
        move_seconds = facts.num_tokens * costs.step_seconds / _PREFILL_SPEEDUP if measured is None else measured
    else:
        move_seconds = -(-facts.num_tokens // costs.page_tokens) * costs.page_seconds(offer[1].page_bytes)
    return facts.max_remaining_tokens * costs.step_seconds < move_seconds
