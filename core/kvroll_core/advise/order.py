"""The order in which to turn things on: what costs nothing first, what costs quality later, what costs money last."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from kvroll_core.advise.traffic import Profile
from kvroll_core.budget import Ask, Fit, ModelShape, format_bytes, reckon
from kvroll_core.precision.formats import KV_FORMATS, PAGE_TOKENS, WEIGHT_FORMATS
from kvroll_core.wall import Advice, Wall, WallVerdict

WORTH_OVERLAP = 0.05
"""Share of prompt tokens found again below which a prefix cache saves less than its bookkeeping is worth watching;
ours, by judgement.
"""
_KV_GENTLE_FIRST = ("int8", "fp8_e4m3", "mxfp8", "kivi4", "kivi2")
_WEIGHTS_GENTLE_FIRST = ("int8", "fp8_e4m3", "int4", "mxfp4")
_GENTLE_BITS = 4
"""Of a KV element; with fewer a small model lost half of its needles (docs/quality.md)."""


class LeverDecision(StrEnum):
    """What to do with a lever."""

    ALWAYS = "AlwaysOn"
    ON = "TurnOn"
    LEAVE = "Leave"
    UNKNOWN = "NotTold"


@dataclass(frozen=True)
class AdvisedStep:
    """One lever (paging, prefixCache, kvCache, weights, replica), what to do with it, and the figures that justify
    it.
    """

    lever: str
    decision: LeverDecision
    to: str
    why: str


@dataclass(frozen=True)
class Room:
    """The memory that the traffic must fit into: the model, its present precision, and the device."""

    shape: ModelShape
    weights: str
    kv_cache: str
    device_bytes: int


def order(
    profile: Profile, room: Room | None = None, verdict: WallVerdict | None = None, advice: tuple[Advice, ...] = ()
) -> tuple[AdvisedStep, ...]:
    """What to turn on, in order. With a live verdict its advice decides about precision, otherwise whether the peak
    fits the room.
    """
    steps = [_paging(profile), _prefix(profile)]
    if verdict is not None:
        return (*steps, *_by_wall(verdict, advice))
    if room is None or not profile.peak_sessions or not profile.peak_tokens:
        missing = "the model and the device memory" if room is None else "durations (or the seconds of a token)"
        why = f"whether the peak fits is not known: say {missing}"
        return (
            *steps,
            *(AdvisedStep(lever, LeverDecision.UNKNOWN, "-", why) for lever in ("kvCache", "weights", "replica")),
        )
    return (*steps, *_by_room(profile, room))


def helps(steps: tuple[AdvisedStep, ...]) -> bool:
    """Whether any lever that is not always on is worth turning on."""
    return any(step.decision is LeverDecision.ON for step in steps)


def _paging(profile: Profile) -> AdvisedStep:
    why = "pages are how the cache is kept"
    if profile.total:
        contiguous = 1 - profile.total.mean / profile.total.most
        paged = 1 - profile.total.mean / (profile.total.mean + PAGE_TOKENS / 2)
        why += (
            f": rows of the longest session ({profile.total.most} tokens) would stand {contiguous:.0%} empty,"
            f" {PAGE_TOKENS}-token pages about {paged:.1%}"
        )
    return AdvisedStep("paging", LeverDecision.ALWAYS, "-", why)


def _prefix(profile: Profile) -> AdvisedStep:
    if profile.overlap is None:
        return AdvisedStep(
            "prefixCache", LeverDecision.UNKNOWN, "-", "the source does not tell how much of the prompts is shared"
        )
    share = f"{profile.overlap:.1%} of prompt tokens were the beginning of an earlier prompt"
    if profile.overlap < WORTH_OVERLAP:
        return AdvisedStep(
            "prefixCache",
            LeverDecision.LEAVE,
            "Off",
            f"{share}, less than {WORTH_OVERLAP:.0%}: next to nothing to reuse",
        )
    held = f"; to keep them all takes {profile.distinct_tokens} tokens of cache" if profile.distinct_tokens else ""
    saves = f"prefill computes {1 / max(1 - profile.overlap, 1e-9):.1f} x fewer tokens at best"
    return AdvisedStep("prefixCache", LeverDecision.ON, "On", f"{share}: {saves}{held}")


def _by_wall(verdict: WallVerdict, advice: tuple[Advice, ...]) -> Iterator[AdvisedStep]:
    """The first advice for each lever; a lever without one is left alone, and why."""
    named = {a.lever: a for a in reversed(advice)}
    no_precision = verdict.wall in (Wall.COMPUTE, Wall.HOST, Wall.IDLE)
    for lever in ("kvCache", "weights", "replica"):
        found = named.get(lever)
        if verdict.wall is Wall.UNKNOWN:
            brings = "; ".join(f"{m.figure}: {m.bring}" for m in verdict.missing)
            yield AdvisedStep(
                lever,
                LeverDecision.UNKNOWN,
                "-",
                f"the wall is Unknown: {verdict.says}{f' ({brings})' if brings else ''}",
            )
        elif found is not None and not (no_precision and lever != "replica"):
            by = f" (by {found.flag})" if found.flag else ""
            yield AdvisedStep(lever, LeverDecision.ON, found.to, f"{verdict.wall} wall: {found.why}{by}")
        elif advice or no_precision:
            yield AdvisedStep(
                lever, LeverDecision.LEAVE, "-", f"{verdict.wall} wall: {found.why if found else verdict.says}"
            )
        else:
            yield AdvisedStep(
                lever, LeverDecision.UNKNOWN, "-", f"{verdict.wall} wall: say the model to reckon what a change does"
            )


def _by_room(profile: Profile, room: Room) -> Iterator[AdvisedStep]:
    now = _fit(profile, room, room.weights, room.kv_cache)
    need = f"the peak of {now.ask.sessions} sessions, {now.ask.tokens} tokens each"
    if now.fits:
        why = f"{need}, takes {format_bytes(now.total_bytes)} of {_usable(now)}: it fits, precision gains no room that is needed"
        yield from (AdvisedStep(lever, LeverDecision.LEAVE, "-", why) for lever in ("kvCache", "weights", "replica"))
        return
    short = f"{need}, takes {format_bytes(now.total_bytes)} of {_usable(now)}: at most {now.max_sessions} fit"
    kv = [room.kv_cache, *_smaller(_KV_GENTLE_FIRST, KV_FORMATS[room.kv_cache].payload_bits)]
    harsh = [k for k in kv if KV_FORMATS[k].payload_bits < _GENTLE_BITS]
    gentle = [k for k in kv if k not in harsh]
    weights = [room.weights, *(w for w in _WEIGHTS_GENTLE_FIRST if _is_smaller(w, room.weights))]
    # Weights are the outer loop: KV alone is tried first, from the gentlest down, and 2 bits only where nothing else fits.
    tried = [(w, k) for some in (gentle, harsh) for w in weights for k in some]
    fitting = (pair for pair in tried if _fit(profile, room, *pair).fits)
    to_weights, to_kv = next(fitting, (weights[-1], kv[-1]))
    then = _fit(profile, room, to_weights, to_kv)
    if not then.max_sessions:
        why = f"{short}, and at {to_weights}/{to_kv} not one does either: a larger device, or shorter sessions"
        yield from (AdvisedStep(lever, LeverDecision.LEAVE, "-", why) for lever in ("kvCache", "weights", "replica"))
        return
    yield _change("kvCache", room.kv_cache, to_kv, f"{short}; then at most {then.max_sessions}")
    yield _change("weights", room.weights, to_weights, "" if to_kv != room.kv_cache else short)
    if then.fits:
        yield AdvisedStep("replica", LeverDecision.LEAVE, "-", f"at {to_weights}/{to_kv} the peak fits one worker")
    else:
        count = ceil(then.ask.sessions / then.max_sessions)
        why = f"no precision fits the peak: {count} workers of at most {then.max_sessions} sessions at {to_weights}/{to_kv} do"
        yield AdvisedStep("replica", LeverDecision.ON, f"{count} replicas", why)


def _change(lever: str, now: str, to: str, why: str) -> AdvisedStep:
    if now == to:
        return AdvisedStep(
            lever, LeverDecision.LEAVE, "-", f"{now} stays: a change of it is not needed, or gains nothing"
        )
    return AdvisedStep(lever, LeverDecision.ON, to, f"{why}; quality is yours to measure: gate it".removeprefix("; "))


def _fit(profile: Profile, room: Room, weights: str, kv_cache: str) -> Fit:
    sessions = max(1, ceil(profile.peak_sessions or 0))
    tokens = max(1, ceil((profile.peak_tokens or 0) / sessions))
    ask = Ask(weights, kv_cache, sessions, tokens, device_bytes=room.device_bytes)
    return reckon(room.shape, ask)


def _smaller(names: tuple[str, ...], bits: int) -> list[str]:
    return [n for n in names if KV_FORMATS[n].built and KV_FORMATS[n].payload_bits < bits]


def _is_smaller(name: str, than: str) -> bool:
    return WEIGHT_FORMATS[name].built and WEIGHT_FORMATS[name].element_bytes(64) < WEIGHT_FORMATS[than].element_bytes(
        64
    )


def _usable(fit: Fit) -> str:
    return f"{format_bytes(fit.usable_bytes or 0)} usable"
