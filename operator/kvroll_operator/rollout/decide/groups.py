"""Which groups a pool has: ids that pods carry, kept as long as possible, victims of a scale-down chosen once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvroll_operator.rollout.facts.view import View


def group_set(view: View) -> tuple[int, ...]:
    """Ids of the wanted groups, ascending.

    Too many: the emptiest leave first; a group that is already closing stays a victim. Too few: ids with objects, then the plan's, then the
    smallest free.
    """
    wanted = view.desired.num_groups
    ids = {p.group for p in view.live} | set(view.turns)
    if len(ids) > wanted:
        return tuple(sorted(_stayers(view, sorted(ids, key=lambda g: _worth(view, g)), wanted)))
    return tuple(sorted(ids | _more(view, ids, wanted - len(ids))))


def _stayers(view: View, by_worth: list[int], wanted: int) -> list[int]:
    """The worthiest; while the new revision is held back, as many old groups among them as the spec leaves old."""
    stay = by_worth[len(by_worth) - wanted :]
    if not view.is_held_back:
        return stay
    kept_old = wanted if view.is_paused or view.is_unapproved else min(view.desired.partition, wanted)
    old = [g for g in by_worth if g not in view.record.done and g not in view.turns][-kept_old:] if kept_old else []
    others = [g for g in by_worth if g not in old]
    return [*old, *others[len(others) - (wanted - len(old)) :]] if wanted > len(old) else old


def _worth(view: View, group: int) -> tuple[bool, bool, bool, bool, int, int]:
    live = view.live_of(group)
    return (
        group in view.turns,
        not any(p.is_closed for p in live),
        any(view.serves(p) for p in live),
        group in view.record.done,
        view.sessions(group),
        -group,
    )


def _more(view: View, ids: set[int], count: int) -> set[int]:
    with_objects = sorted({p.group for p in view.pods} - ids)
    planned = [g for g in (view.plan.order if view.plan else ()) if g not in ids]
    free = [g for g in range(len(ids) + count + len(with_objects)) if g not in ids]
    candidates = dict.fromkeys([*with_objects, *planned, *free])
    return set(list(candidates)[:count])
