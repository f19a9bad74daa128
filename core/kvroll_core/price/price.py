"""The price of a rollout and what it buys."""

from dataclasses import dataclass, replace
from functools import reduce

from kvroll_core.budget import BudgetError, page_window, plan_budget
from kvroll_core.precision.formats import PAGE_TOKENS, FormatNotBuiltError
from kvroll_core.price.ask import Blocker, PriceAsk, Rates, count_sessions
from kvroll_core.price.outcome import GroupOutcome, WayPrice
from kvroll_core.price.times import ASSUMED_GROUP_SECONDS, rollout_seconds
from kvroll_core.price.walk import page_bytes, walk
from kvroll_core.words import WayOn
from kvroll_core.work import WorkModel


@dataclass(frozen=True)
class KvFit:
    """KV pages of all workers. `fits`: the target's pages hold what is held now; `problem` says why the target cannot even start."""

    fits: bool
    problem: str
    pages_held: int
    pages_before: int
    pages_after: int
    page_bytes_before: int
    page_bytes_after: int
    sessions_before: int
    sessions_after: int


@dataclass(frozen=True)
class Benefit:
    """Bytes that a step over all sessions reads, weights and KV apart; ratios are after over before. Modelled from the formats' sizes."""

    weights_bytes_before: int
    weights_bytes_after: int
    kv_bytes_before: int
    kv_bytes_after: int
    sessions_ratio: float | None

    @property
    def bytes_per_step_ratio(self) -> float:
        """Bytes a step after, over before."""
        return (self.weights_bytes_after + self.kv_bytes_after) / (self.weights_bytes_before + self.kv_bytes_before)


@dataclass(frozen=True)
class Price:
    """`sessions` are those held now by the groups that change; `held` counts each once for every drain that finds it, as the drains'
    own counters will; `ways` add up to `held`. `seconds_range`: by the fastest and by the slowest rates that workers measured, where these
    differ so much that one figure misleads; None where they agree, and where a single worker cannot tell.
    """

    sessions: int
    held: int
    groups: int
    ways: tuple[WayPrice, ...]
    bytes_to_move: int
    tokens_to_replay: int
    surge_devices: int
    device_seconds_idle: float
    seconds: float
    fit: KvFit
    benefit: Benefit
    rates: Rates
    seconds_range: tuple[float, float] | None = None
    blockers: tuple[tuple[Blocker, str], ...] = ()
    warnings: tuple[str, ...] = ()

    def way(self, way: WayOn | None) -> WayPrice:
        """The sessions that take that way on."""
        return next((w for w in self.ways if w.way is way), WayPrice(way))


def price(ask: PriceAsk) -> Price:
    """What the rollout costs and gains.

    Raises:
        UnknownFormatError: a dtype that is not in the table.
    """
    outcomes = walk(ask)
    ways = _together(outcomes)
    fit = _fit(ask)
    settings = ask.settings
    workers = len(ask.in_scope) * settings.group_size
    idle = workers * settings.devices * (ask.rates.start_seconds.value + ASSUMED_GROUP_SECONDS)
    seconds = rollout_seconds(ask, outcomes)
    surging = min(settings.max_surge, len(ask.in_scope)) * settings.group_size * settings.devices
    return Price(
        sessions=ask.sessions,
        held=sum(o.held for o in outcomes),
        groups=len(ask.in_scope),
        ways=ways,
        bytes_to_move=sum(w.bytes for w in ways),
        tokens_to_replay=sum(w.tokens for w in ways),
        surge_devices=surging,
        device_seconds_idle=idle,
        seconds=seconds,
        fit=fit,
        benefit=_benefit(ask, fit),
        rates=ask.rates,
        seconds_range=_range(ask, seconds),
        blockers=_blockers(ask, ways, fit),
        warnings=ask.warnings,
    )


def _range(ask: PriceAsk, seconds: float) -> tuple[float, float] | None:
    """Slower rates need not mean a longer roll: sessions also grow more slowly meanwhile. So the ends are taken by their result."""
    if not ask.rates.are_unsteady:
        return None
    asks = [replace(ask, rates=rates) for rates in (ask.rates.fastest, ask.rates.slowest)]
    found = [seconds, *(rollout_seconds(one, walk(one)) for one in asks)]
    return min(found), max(found)


def _together(outcomes: tuple[GroupOutcome, ...]) -> tuple[WayPrice, ...]:
    """All groups' ways, in the order of the words."""
    order: list[WayOn | None] = [*WayOn, None]
    every = [w for outcome in outcomes for w in outcome.ways]
    found = [[w for w in every if w.way is way] for way in order]
    return tuple(reduce(WayPrice.plus, same) for same in found if same)


def _fit(ask: PriceAsk) -> KvFit:
    change = ask.change
    workers = (len(ask.groups) + ask.settled) * ask.settings.group_size
    held = sum(c.pages for group in ask.groups for c in group)
    mean = _mean_pages(ask)
    problem, after, sessions = "", 0, 0
    try:
        budget = plan_budget(change.shape, change.after)
        after, sessions = budget.pages + budget.open_pages, budget.sessions_of(mean * PAGE_TOKENS)
    except (BudgetError, FormatNotBuiltError) as error:
        problem = str(error)
    before_all, after_all = change.pages_before * workers, after * workers
    if not problem and held > after_all:
        problem = f"{held} pages are held now; {workers} workers of {after} pages have {after_all}"
    return KvFit(
        fits=not problem,
        problem=problem,
        pages_held=held,
        pages_before=before_all,
        pages_after=after_all,
        page_bytes_before=page_bytes(change, change.source.kv_form),
        page_bytes_after=page_bytes(change, change.target.kv_form),
        sessions_before=change.pages_before // mean * workers,
        sessions_after=sessions * workers,
    )


def _mean_pages(ask: PriceAsk) -> int:
    """Pages of a session of the mean length; without sessions, of the longest that the target takes."""
    window = page_window(ask.change.shape, ask.change.after.max_batch_tokens, ask.change.after.precision.kv_cache)
    classes = [c for group in ask.groups for c in group]
    sessions = sum(c.sessions for c in classes)
    if not sessions:
        return max(1, window.session_pages(ask.change.after.max_model_len))
    return max(1, window.session_pages(-(-sum(c.tokens for c in classes) // sessions)))


def _benefit(ask: PriceAsk, fit: KvFit) -> Benefit:
    change = ask.change
    workers = (len(ask.groups) + ask.settled) * ask.settings.group_size
    before, after = (WorkModel(change.shape, asked.precision) for asked in (change.before, change.after))
    rows = max(1.0, sum(map(count_sessions, ask.groups)) / max(1, workers))
    return Benefit(
        weights_bytes_before=workers * int(before.matrix_bytes(rows) + before.head_bytes),
        weights_bytes_after=workers * int(after.matrix_bytes(rows) + after.head_bytes),
        kv_bytes_before=_kv_read_bytes(ask, before),
        kv_bytes_after=_kv_read_bytes(ask, after),
        sessions_ratio=fit.sessions_after / fit.sessions_before if fit.sessions_before and fit.sessions_after else None,
    )


def _kv_read_bytes(ask: PriceAsk, model: WorkModel) -> int:
    """Bytes of KV that a step of all sessions reads."""
    classes = [c for group in ask.groups for c in group if c.tokens]
    return int(sum(c.sessions * sum(model.context_bytes(c.mean_tokens).values()) for c in classes))


def _blockers(ask: PriceAsk, ways: tuple[WayPrice, ...], fit: KvFit) -> tuple[tuple[Blocker, str], ...]:
    found = [(hold, "") for hold in ask.holds]
    if fit.problem:
        found.append((Blocker.DOES_NOT_FIT, fit.problem))
    stuck = sum(w.sessions for w in ways if w.way is None)
    if stuck:
        allowed = ", ".join(ask.settings.allow)
        found.append((Blocker.NO_WAY_ON, f"{stuck} sessions have no way on among {allowed}: their drain would wait"))
    return tuple(found)
