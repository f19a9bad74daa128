"""What to change at a wall, in order, each with its predicted effect; and which ceiling one more replica moves."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS
from kvroll_core.wall.load import Load
from kvroll_core.wall.step import Effect, Rates, kv_step_seconds, modelled_step_seconds, predict, step_ratio
from kvroll_core.wall.verdict import Verdict, Wall

_KV_BY_QUALITY = ("fp32", "bf16", "fp16", "int8", "fp8_e4m3", "mxfp8", "kivi4", "kivi2")
_WEIGHTS_BY_BYTES = ("fp32", "bf16", "fp16", "int8", "fp8_e4m3", "int4", "mxfp4")
_WORTH_STEP = 0.97  # a step at most this much of now is worth a change
_WORTH_SESSIONS = 1.1
_FREED_SHARE = 0.2  # of the pool, below which smaller weights are no way to more sessions
_ROOM_FOR_BATCH = 0.7  # used share of pages, below which a larger batch has room
_QUALITY = "quality is yours to measure: gate it"


@dataclass(frozen=True)
class Advice:
    """One thing to change: `lever` (kvCache, weights, batch, replica, nothing), what to, why, and what it does."""

    lever: str
    to: str
    why: str
    effect: Effect | None = None


def recommend(verdict: Verdict, load: Load, rates: Rates) -> tuple[Advice, ...]:
    """What to change, the best first; ends with what one more replica moves. Idle, Host and Unknown have nothing for
    precision to change.
    """
    if verdict.wall in (Wall.IDLE, Wall.HOST, Wall.UNKNOWN):
        return (Advice("nothing", "-", "neither precision nor a replica changes what is short here"),)
    if verdict.wall is Wall.COMPUTE:
        return (_native_weights(), _replica(verdict, load, rates))
    if verdict.wall is Wall.CAPACITY:
        found = [*_kv_for_room(load, rates), *_weights_for_room(load, rates)]
    elif verdict.wall is Wall.BOTH:
        found = [*_kv_for_both(load, rates), *_weights_for_speed(load, rates)]
    elif kv_share(load, rates) > 0.5:
        found = [*_kv_for_speed(load, rates), *_weights_for_speed(load, rates)]
    else:
        found = [*_weights_for_speed(load, rates), *_batch(verdict, load, rates)]
    return (*(found or [_nothing_here(load)]), _replica(verdict, load, rates))


def kv_share(load: Load, rates: Rates) -> float:
    """Share of a step's memory time that goes to KV; by bytes where the rates are not measured."""
    whole, kv = modelled_step_seconds(load, rates), kv_step_seconds(load, rates)
    return load.kv_read_bytes / load.read_bytes if whole is None or kv is None else kv / whole


def _kv_for_room(load: Load, rates: Rates) -> Iterable[Advice]:
    for name, effect in _smaller_kv(load, rates):
        if effect.sessions_ratio >= _WORTH_SESSIONS:
            yield Advice("kvCache", name, f"{_room(effect)}, {_speed(effect)}; {_QUALITY}", effect)


def _kv_for_both(load: Load, rates: Rates) -> Iterable[Advice]:
    gains = [(n, e) for n, e in _smaller_kv(load, rates) if e.sessions_ratio >= _WORTH_SESSIONS]
    # What makes a step slower trades one wall for the other: last.
    for name, effect in sorted(gains, key=lambda g: (g[1].step_ratio or 1.0) > 1.0):
        yield Advice("kvCache", name, f"{_room(effect)}, {_speed(effect)}: both walls; {_QUALITY}", effect)


def _kv_for_speed(load: Load, rates: Rates) -> Iterable[Advice]:
    gains = [(n, e) for n, e in _smaller_kv(load, rates) if e.step_ratio is None or e.step_ratio <= _WORTH_STEP]
    for name, effect in sorted(gains, key=lambda g: g[1].step_ratio or 1.0):
        share = f"KV is {kv_share(load, rates):.0%} of a step"
        yield Advice("kvCache", name, f"{share}: {_speed(effect)}, {_room(effect)}; {_QUALITY}", effect)


def _weights_for_speed(load: Load, rates: Rates) -> Iterable[Advice]:
    gains = [(n, e) for n, e in _smaller_weights(load, rates) if e.step_ratio is None or e.step_ratio <= _WORTH_STEP]
    for name, effect in sorted(gains, key=lambda g: g[1].step_ratio or 1.0):
        share = f"weights are {1 - kv_share(load, rates):.0%} of a step"
        yield Advice("weights", name, f"{share}: {_speed(effect)}, {_room(effect)}; {_QUALITY}", effect)


def _weights_for_room(load: Load, rates: Rates) -> Iterable[Advice]:
    for name, effect in _smaller_weights(load, rates):
        if effect.sessions_ratio >= 1 + _FREED_SHARE:
            yield Advice("weights", name, f"frees memory for KV: {_room(effect)}, {_speed(effect)}; {_QUALITY}", effect)


def _batch(verdict: Verdict, load: Load, rates: Rates) -> Iterable[Advice]:
    used = verdict.value("kv_used")
    if used is None or used >= _ROOM_FOR_BATCH:
        return
    ratio = step_ratio(load, replace(load, sessions=2 * load.sessions), rates)
    gain = f": twice the batch gives {2 / ratio:.1f} x the tokens a second" if ratio else ""
    why = f"weights are read once a step for all sessions, and pages are {used:.0%} used{gain}"
    yield Advice("batch", "more sessions a worker", why, Effect(1.0, ratio) if ratio else None)


def _replica(verdict: Verdict, load: Load, rates: Rates) -> Advice:
    count = load.replicas
    each = count / (count + 1)
    ratio = step_ratio(load, replace(load, sessions=load.sessions * each), rates)
    effect = Effect(1 / each, ratio)
    moves = {
        Wall.CAPACITY: f"the capacity ceiling: {1 / each:.2f} x the sessions fit",
        Wall.COMPUTE: f"the compute ceiling: each worker has {each:.0%} of the tokens to compute",
        Wall.BOTH: f"the capacity ceiling ({1 / each:.2f} x the sessions fit) and the KV part of the bandwidth ceiling",
        Wall.BANDWIDTH: "the KV part of the bandwidth ceiling; the weights part stays, every replica reads them all",
    }[verdict.wall]
    time = f"; {_speed(effect)}" if ratio else ""
    return Advice("replica", f"{count + 1} replicas", f"moves {moves}{time}", effect)


def _native_weights() -> Advice:
    why = (
        "KV precision will not help, and weight-only formats will not: they are widened before they are multiplied."
        " Weights multiplied natively in 8 or 4 bits may, where the device and the engine do that; so do"
        " shorter prompts and prefix hits"
    )
    return Advice("weights", "natively multiplied low precision", why)


def _nothing_here(load: Load) -> Advice:
    why = f"no smaller dtype than {load.precision.weights}/{load.precision.kv_cache} is faster or roomier by the rates measured here"
    return Advice("nothing", "-", why)


def _smaller_kv(load: Load, rates: Rates) -> list[tuple[str, Effect]]:
    """KV dtypes that store less, the gentlest first: of those with equal bits the fastest, or where that is unknown
    the most exact.
    """
    best: dict[int, tuple[str, Effect]] = {}
    now = KV_FORMATS[load.precision.kv_form.kv_format].payload_bits
    for name in _KV_BY_QUALITY:
        dtype = KV_FORMATS[name]
        if not dtype.built or dtype.payload_bits >= now or (effect := _kv_effect(load, rates, name)) is None:
            continue
        held = best.get(dtype.payload_bits)
        # Equal speed within the noise of a measurement: the more exact one stays.
        if held is None or _is_faster(effect, held[1]):
            best[dtype.payload_bits] = (name, effect)
    return list(best.values())


def _kv_effect(load: Load, rates: Rates, name: str) -> Effect | None:
    """None where the model's cache (of latents) or its skipped layers rule the format out."""
    try:
        return predict(load, rates, kv_cache=name)
    except ValueError:
        return None


def _smaller_weights(load: Load, rates: Rates) -> list[tuple[str, Effect]]:
    now = load.precision.element_bytes
    found = {n: replace(load.precision, weights=n).element_bytes for n in _WEIGHTS_BY_BYTES if WEIGHT_FORMATS[n].built}
    return [(name, predict(load, rates, weights=name)) for name, size in found.items() if size < now]


def _is_faster(effect: Effect, than: Effect) -> bool:
    if effect.step_ratio is None or than.step_ratio is None:
        return False
    return effect.step_ratio < than.step_ratio - 0.02


def _room(effect: Effect) -> str:
    return f"{effect.sessions_ratio:.2f} x the sessions fit"


def _speed(effect: Effect) -> str:
    if effect.step_ratio is None:
        return "step time unknown (its speed is not measured on this device)"
    word = "faster" if effect.step_ratio < 1 else "slower"
    change = abs(1 - effect.step_ratio)
    return "step time unchanged" if change < 0.005 else f"a step {change:.0%} {word}"
