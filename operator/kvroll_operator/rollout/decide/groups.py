"""Which groups a pool has: ids that pods carry, kept as long as possible, victims of a scale-down chosen once."""

from kvroll_operator.rollout.facts.view import Seen


def choose_groups(seen: Seen) -> tuple[int, ...]:
    """Ids of the wanted groups, ascending.

    Too many: the emptiest leave first; a group that is already closing stays a victim. Too few: ids with objects, then the plan's, then the
    smallest free.
    """
    wanted = seen.desired.num_groups
    ids = {p.group for p in seen.live} | set(seen.turns)
    if len(ids) > wanted:
        return tuple(sorted(_stayers(seen, sorted(ids, key=lambda g: _worth(seen, g)), wanted)))
    return tuple(sorted(ids | _more(seen, ids, wanted - len(ids))))


def _stayers(seen: Seen, by_worth: list[int], wanted: int) -> list[int]:
    """The worthiest; while the new revision is held back, as many old groups among them as the spec leaves old."""
    stay = by_worth[len(by_worth) - wanted :]
    if not seen.is_held_back:
        return stay
    kept_old = wanted if seen.is_paused or seen.is_unapproved else min(seen.desired.partition, wanted)
    old = [g for g in by_worth if g not in seen.record.done and g not in seen.turns][-kept_old:] if kept_old else []
    others = [g for g in by_worth if g not in old]
    return [*old, *others[len(others) - (wanted - len(old)) :]] if wanted > len(old) else old


def _worth(seen: Seen, group: int) -> tuple[bool, bool, bool, bool, int, int]:
    live = seen.live_of(group)
    return (
        group in seen.turns,
        not any(p.is_closed for p in live),
        any(seen.serves(p) for p in live),
        group in seen.record.done,
        seen.sessions(group),
        -group,
    )


def _more(seen: Seen, ids: set[int], count: int) -> set[int]:
    with_objects = sorted({p.group for p in seen.pods} - ids)
    planned = [g for g in seen.plan.order if g not in ids]
    free = [g for g in range(len(ids) + count + len(with_objects)) if g not in ids]
    candidates = dict.fromkeys([*with_objects, *planned, *free])
    return set(list(candidates)[:count])
