"""A rollout walked through on paper: each session of each group takes the way on that the draining worker would choose for it.

Sessions grow by a token a step until their group's turn; those that end before it are taken as replaced by others like them now. So
figures of a load that thins out are upper bounds.
"""

from dataclasses import dataclass, replace

from kvroll_core.budget import PageWindow, page_window
from kvroll_core.choice import KINDS, Costs, MoveTarget, Policy, SessionFacts, choose
from kvroll_core.compat import Descriptor
from kvroll_core.precision.kv_form import KvForm
from kvroll_core.precision.sealing import DEFAULT_RESIDUAL_TOKENS, OPEN_FORMAT, Sealing
from kvroll_core.price.ask import PriceAsk, PriceChange, RateSource, SessionClass
from kvroll_core.price.outcome import GroupOutcome, WayPrice
from kvroll_core.price.times import drain_seconds, replayed_tokens, seconds_before_drain
from kvroll_core.words import VerdictKind, WayOn


@dataclass(frozen=True)
class _Seen:
    """Sessions as they were at that second of the rollout."""

    sessions: SessionClass
    at: float


def walk(ask: PriceAsk) -> tuple[GroupOutcome, ...]:
    """The groups in order. A session that goes on to a worker of the old revision is found again by that worker's drain."""
    waiting = [[_Seen(sessions, 0.0) for sessions in group] for group in ask.in_scope]
    outcomes: list[GroupOutcome] = []
    at_once, before = ask.settings.groups_at_once, ask.change.before
    window = page_window(ask.change.shape, before.max_batch_tokens, before.precision.kv_cache)
    ready = through = 0.0
    for index, found in enumerate(waiting):
        if index % at_once == 0:
            ready = through + seconds_before_drain(ask)
        later = waiting[index + 1] if index + 1 < len(waiting) else None
        ways: dict[WayOn | None, WayPrice] = {}
        for seen in found:
            sessions = aged(seen.sessions, int((ready - seen.at) / ask.rates.step_seconds.value), window)
            way, hops = _way_of(ask, sessions, index)
            if hops and later is not None:
                later.append(_Seen(replace(sessions, moved=True), ready))
            behind = ways[way].tokens if way in ways else 0
            priced = _priced(ask, sessions, way, hops=hops, behind_tokens=behind)
            ways[way] = ways[way].plus(priced) if way in ways else priced
        outcomes.append(GroupOutcome(tuple(ways.values()), ready))
        through = max(through, ready + drain_seconds(ask, outcomes[-1]))
    return tuple(outcomes)


def aged(sessions: SessionClass, steps: int, window: PageWindow) -> SessionClass:
    """The class `steps` engine steps later: a token longer each step, and by the pages that its windows do not pass. One that must have
    ended by then stands for the like that took its place, and stays as it is.
    """
    if steps >= sessions.mean_remaining_tokens:
        return sessions
    mean = sessions.mean_tokens
    more = window.decoding_pages(mean + steps) - window.decoding_pages(mean)
    return replace(
        sessions,
        tokens=sessions.tokens + steps * sessions.sessions,
        max_remaining_tokens=max(0, sessions.max_remaining_tokens - steps * sessions.sessions),
        pages=max(sessions.pages + sessions.sessions * more, 0),
    )


def page_bytes(change: PriceChange, kv_form: str) -> int:
    """Bytes of a page of that model in that format."""
    shape = change.shape
    return KvForm.parse(kv_form).page_bytes(layers=shape.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim)


def _wire_bytes(change: PriceChange, wire: Descriptor, sessions: SessionClass) -> int:
    """Bytes of the sessions' pages as that worker takes them: of a sealed format the newest pages of each are open ones."""
    sealing = Sealing(wire.kv_format, wire.residual_tokens or DEFAULT_RESIDUAL_TOKENS)
    opened = min(sessions.pages, sessions.sessions * sealing.open_pages)
    return opened * page_bytes(change, OPEN_FORMAT) + (sessions.pages - opened) * page_bytes(change, wire.kv_form)


def _way_of(ask: PriceAsk, sessions: SessionClass, index: int) -> tuple[WayOn | None, bool]:
    """The way on, and whether it leads to a worker of the old revision."""
    settings, change = ask.settings, ask.change
    move = ask.rates.move_bytes_per_second
    # Without a measured rate the worker goes by its own assumptions and the policy's order, so the price does too.
    prefill = ask.rates.prefill_token_seconds
    costs = Costs(
        ask.rates.step_seconds.value,
        move.value if move.source is RateSource.MEASURED else 0.0,
        prefill_tokens_per_second=1 / prefill.value
        if prefill.source is RateSource.MEASURED and prefill.value > 0
        else 0.0,
    )
    session = SessionFacts(
        sessions.mean_tokens, sessions.mean_remaining_tokens, sessions.reproducible, int(sessions.moved)
    )
    policy = Policy(settings.allow, settings.kv_across_weights)
    choice = choose(session, change.source, _targets(ask, index), policy, costs)
    return choice.way, choice.way in KINDS and choice.target is not None and choice.target.same_revision


def _targets(ask: PriceAsk, index: int) -> list[MoveTarget]:
    """Who may take the sessions of the group at that place: a new worker, and an old one while there is one."""
    change = ask.change
    found = []
    if ask.settings.max_surge or index or ask.settled:
        size = page_bytes(change, change.target.kv_form)
        found.append(MoveTarget("new", change.target, same_revision=False, accepting=True, page_bytes=size))
    if index + 1 < len(ask.groups):
        size = page_bytes(change, change.source.kv_form)
        found.append(MoveTarget("old", change.source, same_revision=True, accepting=True, page_bytes=size))
    return found


def _priced(ask: PriceAsk, sessions: SessionClass, way: WayOn | None, *, hops: bool, behind_tokens: int) -> WayPrice:
    kind = KINDS.get(way) if way is not None else None
    change = ask.change
    wire = change.source if hops else change.target
    moved = _wire_bytes(change, wire, sessions) if kind in (VerdictKind.EXACT, VerdictKind.CONVERT) else 0
    return WayPrice(
        way,
        sessions=sessions.sessions,
        bytes=moved,
        tokens=replayed_tokens(ask, sessions, behind_tokens) if kind is VerdictKind.REPLAY else 0,
        hops=sessions.sessions if hops else 0,
        longest_tokens=0 if kind is not None else sessions.mean_remaining_tokens,
    )
