"""How far a rollout is, and its plan beside what it came to. Pure: the time is a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kvroll_cli.kube.snapshot import DrainNow, Snapshot
from kvroll_operator.api.plan import PlanActual, PlanCost

_BEFORE_DRAIN = frozenset({"Surging", "Warming", "Gating", "Admitting"})
_AFTER_DRAIN = frozenset({"Sealed", "Retiring"})
_MOVES_ON = frozenset({"Rolling"})
_FIGURES = (("sessions", "sessions"), ("moved", "bytes"), ("tokens replayed", "tokens"), ("time", "seconds"))
_NOTHING = (None, None, None, None)
_START_SHARE = 0.5
"""Of a group's turn, how much its new worker's start counts on the bar; the rest is the drain, by sessions."""


class FigureBasis(StrEnum):
    """What an expected end rests on."""

    PLANNED = "planned"
    OBSERVED = "observed"


@dataclass(frozen=True)
class ProgressFigure:
    """One figure of the plan beside the same of the rollout. `unit` is sessions, bytes, tokens or seconds; `is_final` is
    false while the rollout may still add to `actual`.
    """

    name: str
    unit: str
    planned: int | None
    actual: int | None
    is_final: bool

    @property
    def ratio(self) -> float | None:
        """actual / planned; None where either is missing or nothing was planned."""
        if not self.planned or self.actual is None:
            return None
        return self.actual / self.planned


@dataclass(frozen=True)
class RollProgress:
    """How far a rollout is. `fraction` counts groups through, and of a group in turn its new worker's start and its drain.
    `left_seconds` is None where nothing can be said: it does not move, or it is later than planned.
    """

    groups_done: int
    groups_total: int
    fraction: float
    elapsed_seconds: int | None
    left_seconds: int | None
    basis: FigureBasis | None
    figures: tuple[ProgressFigure, ...]

    @property
    def is_late(self) -> bool:
        """It moves, has taken longer than planned, and no group is through to judge by."""
        time = next(f for f in self.figures if f.unit == "seconds")
        return self.left_seconds is None and not time.is_final and (time.ratio or 0) > 1


def progress_of(found: Snapshot, now: datetime | None) -> RollProgress | None:
    """The progress of the plan in force at `now`; None of a pool that has no plan. Without `now` no time is told that passes by
    itself.
    """
    rollout, plan = found.status.rollout, found.status.plan
    if not rollout.id:
        return None
    is_over = rollout.phase == "Complete"
    fraction = 1.0 if is_over else _fraction(found)
    elapsed = _elapsed(found, now)
    left, basis = _left(rollout.phase, rollout.groups_updated, fraction, elapsed, plan.cost)
    figures = figures_of(plan.cost, plan.actual, elapsed, is_final=is_over or rollout.phase == "Failed")
    return RollProgress(rollout.groups_updated, rollout.groups_total, fraction, elapsed, left, basis, figures)


def silent_seconds(drain: DrainNow, now: datetime | None) -> int | None:
    """Seconds since a session last moved or ended in a drain that goes on; None of any other, or if none has yet."""
    if now is None or drain.status.phase != "Draining" or drain.status.last_progress_time is None:
        return None
    return max(0, round((now - _time(drain.status.last_progress_time)).total_seconds()))


def drains_by_group(found: Snapshot) -> Mapping[int, tuple[DrainNow, ...]]:
    """The drains that the plan in force began, by group."""
    by_group: dict[int, tuple[DrainNow, ...]] = {}
    for drain in found.drains:
        if drain.group is not None and drain.rollout == found.status.rollout.id:
            by_group[drain.group] = (*by_group.get(drain.group, ()), drain)
    return by_group


def _fraction(found: Snapshot) -> float:
    total = found.status.rollout.groups_total
    if not total:
        return 0.0
    drains = drains_by_group(found)
    under_way = sum(_share(g.phase, drains.get(g.id, ())) for g in found.status.groups)
    return min(1.0, (found.status.rollout.groups_updated + under_way) / total)


def _share(phase: str, drains: tuple[DrainNow, ...]) -> float:
    if phase in _AFTER_DRAIN:
        return 1.0
    if phase != "Draining":
        return 0.0
    going = [d.status for d in drains if d.status.phase in ("Pending", "Draining")]
    held = sum(status.held for status in going)
    drained = 1 - sum(status.remaining for status in going) / held if held else 0.0
    return _START_SHARE + (1 - _START_SHARE) * max(0.0, drained)


def _elapsed(found: Snapshot, now: datetime | None) -> int | None:
    rollout = found.status.rollout
    end = _time(rollout.finished_at) if rollout.finished_at else now
    if rollout.began_at is None or end is None:
        return None
    # Clocks of two machines: a rollout that begins in our future has just begun.
    return max(0, round((end - _time(rollout.began_at)).total_seconds()))


def _left(
    phase: str, done: int, fraction: float, elapsed: int | None, cost: PlanCost | None
) -> tuple[int | None, FigureBasis | None]:
    if phase not in _MOVES_ON or elapsed is None:
        return None, None
    if done and fraction > 0:
        return round(elapsed * (1 - fraction) / fraction), FigureBasis.OBSERVED
    if cost is not None and cost.seconds >= elapsed:
        return cost.seconds - elapsed, FigureBasis.PLANNED
    return None, None


def figures_of(
    cost: PlanCost | None, actual: PlanActual | None, elapsed: int | None, *, is_final: bool
) -> tuple[ProgressFigure, ...]:
    """The plan's figures beside what it came to; `elapsed` seconds stand for a time that is not final yet."""
    if cost is None and actual is None:
        return (ProgressFigure("time", "seconds", None, elapsed, is_final),)
    # A plan that no group has entered has come to nothing yet.
    seconds = actual.seconds if actual is not None and actual.seconds is not None else elapsed
    planned = (cost.held, cost.bytes_to_move, cost.tokens_to_replay, cost.seconds) if cost else _NOTHING
    came = (actual.held, actual.bytes_moved, actual.tokens_replayed, seconds) if actual else _NOTHING
    rows = zip(_FIGURES, planned, came, strict=True)
    return tuple(ProgressFigure(name, unit, before, after, is_final) for (name, unit), before, after in rows)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
