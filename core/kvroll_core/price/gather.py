"""Puts a price's question together from what workers report and what two revisions ask for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from kvroll_core.budget import BudgetRequest
from kvroll_core.compat import Descriptor
from kvroll_core.precision.codec import described
from kvroll_core.precision.precision import Precision
from kvroll_core.price.ask import (
    Blocker,
    PlacedWorker,
    PriceAsk,
    PriceChange,
    Rate,
    Rates,
    RateSource,
    RollSettings,
    SessionClass,
    WorkerFacts,
)

_UNKNOWN = "unknown until its workers run"
_NEWER_FIELDS = frozenset({"weight_block", "head_dtype"})
"""Of a descriptor, that an older worker does not tell: they differ only where the wishes do."""


@dataclass(frozen=True)
class Wish:
    """What a revision asks for, as far as a price depends on it; None is whatever the worker's default is."""

    model_uri: str
    precision: Precision
    image: str | None = None
    max_model_len: int | None = None
    max_sessions: int | None = None
    kv_memory_bytes: int | None = None
    memory_limit_bytes: int | None = None


def gather(
    workers: Iterable[PlacedWorker],
    wishes: Mapping[str, Wish],
    target: str,
    *,
    order: Sequence[int],
    settings: RollSettings,
    holds: tuple[Blocker, ...] = (),
) -> PriceAsk | None:
    """The question, or None if no worker of an older revision says what it holds.

    `wishes` are by revision, `target` is the one that the pool goes to; `order` are the groups of the pool as the roll takes them, and one
    all of whose workers run the target is settled.
    """
    placed = sorted(workers, key=lambda w: (w.group, w.revision, w.facts.descriptor.kv_format, repr(w.facts.classes)))
    leaving = [w for w in placed if w.revision != target and w.revision in wishes]
    if not leaving:
        return None
    base, old, new = leaving[0].facts, wishes[leaving[0].revision], wishes[target]
    changing = [g for g in order if not _is_settled(placed, g, target)]
    classes = tuple(_classes(leaving, group) for group in changing)
    return PriceAsk(
        change=_change(base, old, new),
        groups=classes,
        settled=len(order) - len(changing),
        settings=settings,
        rates=_rates(placed),
        holds=holds,
        warnings=_warnings(placed, leaving, order, old, new, is_gated=settings.is_gated),
    )


def _is_settled(workers: list[PlacedWorker], group: int, revision: str) -> bool:
    own = [w.revision for w in workers if w.group == group]
    return bool(own) and all(r == revision for r in own)


def _classes(leaving: list[PlacedWorker], group: int) -> tuple[SessionClass, ...]:
    return tuple(c for w in leaving if w.group == group for c in _distinct(w.facts))


def _distinct(facts: WorkerFacts) -> list[SessionClass]:
    """The classes with their share of the pages that the worker really holds: those that sessions share are sent once, and sessions that
    wait for room have none.
    """
    counted = sum(c.pages for c in facts.classes)
    if not 0 < facts.pages_held < counted:
        return list(facts.classes)
    return [replace(c, pages=-(-c.pages * facts.pages_held // counted)) for c in facts.classes]


def _change(base: WorkerFacts, old: Wish, new: Wish) -> PriceChange:
    limits = replace(
        base.asked,
        precision=new.precision,
        max_model_len=new.max_model_len
        or (base.shape.max_positions if old.max_model_len else base.asked.max_model_len),
        max_sessions=new.max_sessions or base.asked.max_sessions,
        kv_memory_bytes=new.kv_memory_bytes or base.asked.kv_memory_bytes,
        memory_limit_bytes=_memory_limit(base.asked, old, new),
    )
    return PriceChange(
        source=base.descriptor,
        target=_target(base.descriptor, old, new, limits.max_model_len),
        shape=base.shape,
        before=base.asked,
        after=limits,
        pages_before=base.pages_total,
    )


def _memory_limit(asked: BudgetRequest, old: Wish, new: Wish) -> int | None:
    """The limit that the worker found, unless the spec's changes: a cgroup above it may be tighter than the spec."""
    return asked.memory_limit_bytes if new.memory_limit_bytes == old.memory_limit_bytes else new.memory_limit_bytes


def _target(source: Descriptor, old: Wish, new: Wish, max_model_len: int) -> Descriptor:
    """The descriptor that the new workers will publish. Another image or checkpoint is something else until it says what it is."""
    before, after = described(old.precision), described(new.precision)
    told = {name: value for name, value in after.items() if name not in _NEWER_FIELDS or value != before[name]}
    target = replace(source, max_model_len=max_model_len, **told)
    if _has_other_image(old, new):
        target = replace(target, engine_version=_UNKNOWN)
    if new.model_uri != old.model_uri:
        target = replace(target, weights_id=_UNKNOWN, base_model_digest=_UNKNOWN)
    return target


def _has_other_image(old: Wish, new: Wish) -> bool:
    return new.image is not None and new.image != old.image


def _rates(workers: list[PlacedWorker]) -> Rates:
    assumed = Rates()
    starts = [w.start_seconds for w in workers if w.start_seconds is not None and w.start_seconds > 0]
    contexts = [w.facts.prefill_context_tokens for w in workers if w.facts.prefill_context_tokens > 0]
    return Rates(
        step_seconds=_mean([w.facts.step_seconds for w in workers], assumed.step_seconds),
        prefill_token_seconds=_mean([w.facts.prefill_token_seconds for w in workers], assumed.prefill_token_seconds),
        move_bytes_per_second=_mean([w.facts.move_bytes_per_second for w in workers], assumed.move_bytes_per_second),
        start_seconds=_rate(median(starts), starts) if starts else assumed.start_seconds,
        prefill_context_tokens=fmean(contexts) if contexts else None,
    )


def _mean(values: list[float], assumed: Rate) -> Rate:
    measured = [v for v in values if v > 0]
    return _rate(fmean(measured), measured) if measured else assumed


def _rate(value: float, measured: list[float]) -> Rate:
    """One worker alone shows no spread."""
    low, high = min(measured), max(measured)
    return Rate(value, RateSource.MEASURED, low, high) if low < high else Rate(value, RateSource.MEASURED)


def _warnings(
    placed: list[PlacedWorker],
    leaving: list[PlacedWorker],
    order: Sequence[int],
    old: Wish,
    new: Wish,
    *,
    is_gated: bool,
) -> tuple[str, ...]:
    unmeasured = "quality unmeasured: spec.gate is unset, so nothing will judge this precision on your tasks"
    found = [unmeasured] if _changes_numbers(old, new) and not is_gated else []
    silent = sorted(set(order) - {w.group for w in placed})
    if silent:
        found.append(f"groups {', '.join(map(str, silent))} do not say what they hold: they are priced as empty")
    if len({w.revision for w in leaving}) > 1:
        found.append("workers of more than one older revision: priced as if all were as the first")
    if _has_other_image(old, new):
        found.append(
            f"another image ({new.image}): its kernels are unknown, so no session is taken to move Exact to it"
        )
    if new.model_uri != old.model_uri:
        found.append(f"another checkpoint ({new.model_uri}): taken for another model, to which no session can move")
    return tuple(found)


def _changes_numbers(old: Wish, new: Wish) -> bool:
    return old.precision != new.precision
