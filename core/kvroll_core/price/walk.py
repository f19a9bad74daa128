"""A rollout walked through on paper: each session of each group takes the way on that the draining worker would choose for it.

Sessions are taken as they are now: under a steady load those that end are replaced by others of the same lengths. So figures of a load that
thins out are upper bounds.
"""

from dataclasses import dataclass, replace

from kvroll_core.choice import KINDS, Costs, Policy, Target, choose
from kvroll_core.choice import Facts as Session
from kvroll_core.formats import find_kv_format
from kvroll_core.price.ask import Change, PriceAsk, SessionClass, Source
from kvroll_core.words import VerdictKind, WayOn


@dataclass(frozen=True)
class WayPrice:
    """Sessions that take one way on; `way` None: none is open to them. `hops`: of these, sessions that go to another worker of the old
    revision, which will be drained of them again. `longest_tokens`: the most that one of them still generates.
    """

    way: WayOn | None
    sessions: int = 0
    bytes: int = 0
    tokens: int = 0
    hops: int = 0
    longest_tokens: int = 0

    def plus(self, other: "WayPrice") -> "WayPrice":
        """Both together."""
        return WayPrice(
            self.way,
            self.sessions + other.sessions,
            self.bytes + other.bytes,
            self.tokens + other.tokens,
            self.hops + other.hops,
            max(self.longest_tokens, other.longest_tokens),
        )


@dataclass(frozen=True)
class GroupOutcome:
    """What becomes of the sessions that a group's drain finds."""

    ways: tuple[WayPrice, ...]

    @property
    def held(self) -> int:
        """Sessions that the drain finds."""
        return sum(w.sessions for w in self.ways)


def walk(ask: PriceAsk) -> tuple[GroupOutcome, ...]:
    """The groups in order. A session that goes on to a worker of the old revision is found again by that worker's drain."""
    waiting = [list(group) for group in ask.in_scope]
    outcomes = []
    for index, found in enumerate(waiting):
        later = waiting[index + 1] if index + 1 < len(waiting) else None
        ways: dict[WayOn | None, WayPrice] = {}
        for sessions in found:
            way, hops = _way_of(ask, sessions, index)
            if hops and later is not None:
                later.append(replace(sessions, moved=True))
            priced = _priced(ask.change, sessions, way, hops=hops)
            ways[way] = ways[way].plus(priced) if way in ways else priced
        outcomes.append(GroupOutcome(tuple(ways.values())))
    return tuple(outcomes)


def page_bytes(change: Change, kv_format: str) -> int:
    """Bytes of a page of that model in that format."""
    shape = change.shape
    return find_kv_format(kv_format).page_bytes(layers=shape.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim)


def _way_of(ask: PriceAsk, sessions: SessionClass, index: int) -> tuple[WayOn | None, bool]:
    """The way on, and whether it leads to a worker of the old revision."""
    settings, change = ask.settings, ask.change
    move = ask.rates.move_bytes_per_second
    # Without a measured rate the worker goes by its own assumption about a page, so the price does too.
    costs = Costs(ask.rates.step_seconds.value, move.value if move.source is Source.MEASURED else 0.0)
    session = Session(sessions.mean_tokens, sessions.mean_remaining_tokens, sessions.reproducible, int(sessions.moved))
    policy = Policy(settings.allow, settings.kv_across_weights)
    choice = choose(session, change.source, _targets(ask, index), policy, costs)
    return choice.way, choice.way in KINDS and choice.target is not None and choice.target.same_revision


def _targets(ask: PriceAsk, index: int) -> list[Target]:
    """Who may take the sessions of the group at that place: a new worker, and an old one while there is one."""
    change = ask.change
    found = []
    if ask.settings.max_surge or index or ask.settled:
        size = page_bytes(change, change.target.kv_format)
        found.append(Target("new", change.target, same_revision=False, accepting=True, page_bytes=size))
    if index + 1 < len(ask.groups):
        size = page_bytes(change, change.source.kv_format)
        found.append(Target("old", change.source, same_revision=True, accepting=True, page_bytes=size))
    return found


def _priced(change: Change, sessions: SessionClass, way: WayOn | None, *, hops: bool) -> WayPrice:
    kind = KINDS.get(way) if way is not None else None
    wire = change.source if hops else change.target
    moved = (
        sessions.pages * page_bytes(change, wire.kv_format) if kind in (VerdictKind.EXACT, VerdictKind.CONVERT) else 0
    )
    return WayPrice(
        way,
        sessions=sessions.sessions,
        bytes=moved,
        tokens=sessions.tokens if kind is VerdictKind.REPLAY else 0,
        hops=sessions.sessions if hops else 0,
        longest_tokens=0 if kind is not None else sessions.mean_remaining_tokens,
    )
