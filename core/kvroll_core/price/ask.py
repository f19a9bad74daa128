"""What the price of a rollout depends on, as values: sessions by length, the change, measured rates, settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kvroll_core.budget import BudgetRequest, ModelShape
from kvroll_core.compat import Descriptor
from kvroll_core.words import DEFAULT_ALLOW, WayOn


class RateSource(StrEnum):
    """Where a rate comes from."""

    MEASURED = "Measured"
    ASSUMED = "Assumed"


class Blocker(StrEnum):
    """What keeps a rollout from beginning, or from ending."""

    DOES_NOT_FIT = "DoesNotFit"
    NO_WAY_ON = "NoWayOn"
    NO_SURGE_DEVICE = "NoSurgeDevice"
    CREATE_REFUSED = "CreateRefused"
    PAUSED = "Paused"
    AWAITING_APPROVAL = "AwaitingApproval"


@dataclass(frozen=True)
class SessionClass:
    """Sessions of about one length, as sums over them. `pages` hold their tokens; `moved`: to a worker of the same revision before."""

    sessions: int
    tokens: int
    max_remaining_tokens: int
    pages: int
    reproducible: bool = False
    moved: bool = False

    @property
    def mean_tokens(self) -> int:
        """Tokens of one of them so far, rounded up."""
        return -(-self.tokens // max(1, self.sessions))

    @property
    def mean_remaining_tokens(self) -> int:
        """The most that one of them may still generate, rounded up."""
        return -(-self.max_remaining_tokens // max(1, self.sessions))


@dataclass(frozen=True)
class Rate:
    """A figure and where it comes from; `low` and `high` are the least and the most of several that measured it differently, else None."""

    value: float
    source: RateSource = RateSource.ASSUMED
    low: float | None = None
    high: float | None = None

    @property
    def is_unsteady(self) -> bool:
        """Whether those who measured it differ so much that one figure misleads."""
        return self.low is not None and self.high is not None and self.high > UNSTEADY_RATIO * self.low


UNSTEADY_RATIO = 1.25
"""Workers of one pool that differ more than this have neighbours, other devices or sessions of very other lengths."""
ASSUMED_STEP_SECONDS = 0.05
ASSUMED_PREFILL_TOKEN_SECONDS = 0.005
ASSUMED_MOVE_BYTES_PER_SECOND = 50e6
ASSUMED_START_SECONDS = 30.0
"""Until a pool has measured its own: a small model on a CPU. Each figure that rests on one says so."""


@dataclass(frozen=True)
class Rates:
    """Seconds of an engine step, seconds of prefill a computed prompt token, bytes a second of one move, seconds from a worker's
    creation until it is Ready. `prefill_context_tokens`: tokens before each of those computed ones, on average; None: not known.
    """

    step_seconds: Rate = Rate(ASSUMED_STEP_SECONDS)
    prefill_token_seconds: Rate = Rate(ASSUMED_PREFILL_TOKEN_SECONDS)
    move_bytes_per_second: Rate = Rate(ASSUMED_MOVE_BYTES_PER_SECOND)
    start_seconds: Rate = Rate(ASSUMED_START_SECONDS)
    prefill_context_tokens: float | None = None

    @property
    def are_unsteady(self) -> bool:
        """Whether any of them is."""
        return any(rate.is_unsteady for rate in self._times()) or self.move_bytes_per_second.is_unsteady

    @property
    def fastest(self) -> "Rates":
        """As if every worker were as fast as the fastest in each."""
        return self._at(fast=True)

    @property
    def slowest(self) -> "Rates":
        """As if every worker were as slow as the slowest in each."""
        return self._at(fast=False)

    def _times(self) -> tuple[Rate, Rate, Rate]:
        return self.step_seconds, self.prefill_token_seconds, self.start_seconds

    def _at(self, *, fast: bool) -> "Rates":
        step, prefill, start = (_end(rate, low=fast) for rate in self._times())
        moves = _end(self.move_bytes_per_second, low=not fast)
        return Rates(step, prefill, moves, start, self.prefill_context_tokens)


def _end(rate: Rate, *, low: bool) -> Rate:
    value = rate.low if low else rate.high
    return rate if value is None else Rate(value, rate.source)


@dataclass(frozen=True)
class WorkerFacts:
    """What one worker says of itself beside its sessions' number. Rates are 0 until measured; `pages_held` are the distinct pages that its
    sessions hold, 0: not known.
    """

    descriptor: Descriptor
    shape: ModelShape
    asked: BudgetRequest
    page_bytes: int
    pages_total: int
    classes: tuple[SessionClass, ...] = ()
    step_seconds: float = 0.0
    prefill_token_seconds: float = 0.0
    prefill_context_tokens: float = 0.0
    move_bytes_per_second: float = 0.0
    pages_held: int = 0


@dataclass(frozen=True)
class PlacedWorker:
    """A worker in its group: its facts, the revision it runs, and how long it took from creation to Ready (None: it is not)."""

    group: int
    revision: str
    facts: WorkerFacts
    start_seconds: float | None = None


@dataclass(frozen=True)
class PriceChange:
    """From one precision to another of one model: who the workers are before and after, and what each asks of its memory."""

    source: Descriptor
    target: Descriptor
    shape: ModelShape
    before: BudgetRequest
    after: BudgetRequest
    pages_before: int


@dataclass(frozen=True)
class RollSettings:
    """The parts of a spec that the price depends on. `parallel` is moves at a time from one worker, `devices` those of one worker;
    `is_gated`: a quality gate will judge the new revision.
    """

    allow: tuple[WayOn, ...] = DEFAULT_ALLOW
    kv_across_weights: bool = False
    parallel: int = 2
    bytes_per_second: int | None = None
    max_surge: int = 1
    max_unavailable: int = 0
    partition: int = 0
    group_size: int = 1
    devices: int = 1
    min_ready_seconds: int = 0
    is_gated: bool = False

    @property
    def groups_at_once(self) -> int:
        """Groups that change at a time."""
        return self.max_surge or max(1, self.max_unavailable)


@dataclass(frozen=True)
class PriceAsk:
    """A rollout to price. `groups` are the sessions of each group that is to change, in the order of the roll; `settled` groups run the
    target already; `holds` are what the asker sees that keeps it from beginning.
    """

    change: PriceChange
    groups: tuple[tuple[SessionClass, ...], ...]
    settled: int = 0
    settings: RollSettings = RollSettings()
    rates: Rates = Rates()
    holds: tuple[Blocker, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def in_scope(self) -> tuple[tuple[SessionClass, ...], ...]:
        """Groups that the partition lets change."""
        return self.groups[: max(0, len(self.groups) - self.settings.partition)]

    @property
    def staying(self) -> int:
        """Groups that the partition keeps on the old revision."""
        return len(self.groups) - len(self.in_scope)

    @property
    def sessions(self) -> int:
        """Sessions of the groups that change."""
        return sum(count_sessions(group) for group in self.in_scope)


def count_sessions(classes: Iterable[SessionClass]) -> int:
    """Sessions of those classes."""
    return sum(c.sessions for c in classes)
