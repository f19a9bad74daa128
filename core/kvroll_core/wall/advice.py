"""What to change at a wall, in order, each with its predicted effect; and which ceiling one more replica moves."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS
from kvroll_core.wall.engine import Engine
from kvroll_core.wall.load import Load
from kvroll_core.wall.step import Effect, KernelRates, kv_step_seconds, modelled_step_seconds, predict, step_ratio
from kvroll_core.wall.verdict import Wall, WallVerdict

_KV_BY_QUALITY = ("fp32", "bf16", "fp16", "int8", "fp8_e4m3", "mxfp8", "kivi4", "kivi2")
_WEIGHTS_BY_BYTES = ("fp32", "bf16", "fp16", "int8", "fp8_e4m3", "int4", "mxfp4")
_WORTH_STEP = 0.97  # a step at most this much of now is worth a change
_WORTH_SESSIONS = 1.1
_FREED_SHARE = 0.2  # of the pool, below which smaller weights are no way to more sessions
_ROOM_FOR_BATCH = 0.7  # used share of pages, below which a larger batch has room
_QUALITY = "quality is yours to measure: gate it"


@dataclass(frozen=True)
class Advice:
    """One thing to change: `lever` (kvCache, weights, batch, sessions, replica, nothing), what to, why, what it does, and the flag of the
    engine that does it (empty where a pool's spec does).
    """

    lever: str
    to: str
    why: str
    effect: Effect | None = None
    flag: str = ""


@dataclass(frozen=True)
class _Choice:
    """A smaller dtype and what it does."""

    to: str
    effect: Effect
    flag: str = ""


def recommend(
    verdict: WallVerdict, load: Load | None, rates: KernelRates, engine: Engine | None = None, version: str = ""
) -> tuple[Advice, ...]:
    """What to change, the best first; ends with what one more replica moves. Of an engine that is not ours only what it can be switched to,
    by its flags, and of one of unknown version only what every version has.

    Nothing is advised where the verdict is Unknown; where it is Idle, precision changes nothing; where sessions wait although there is room
    the engine's limit is named. What changes bytes needs a load: without one (the model is not told) nothing is said of it.
    """
    if verdict.wall is Wall.UNKNOWN:
        return ()
    if verdict.wall in (Wall.IDLE, Wall.HOST):
        return (_limit(verdict, engine), _one_more(load)) if verdict.queues else (_nothing_short(verdict),)
    if verdict.wall is Wall.COMPUTE:
        return (_native_weights(), _one_more(load) if load is None else _replica(verdict, load, rates))
    if load is None:
        return ()
    smaller = _Smaller(load, rates, engine, version)
    if verdict.wall is Wall.CAPACITY:
        found = [*_kv_for_room(smaller), *_weights_for_room(smaller)]
    elif verdict.wall is Wall.BOTH:
        found = [*_kv_for_both(smaller), *_weights_for_speed(smaller)]
    elif kv_share(load, rates) > 0.5:
        found = [*_kv_for_speed(smaller), *_weights_for_speed(smaller)]
    else:
        found = [*_weights_for_speed(smaller), *_batch(verdict, load, rates)]
    return (*(found or [_nothing_here(load)]), _replica(verdict, load, rates))


def kv_share(load: Load, rates: KernelRates) -> float:
    """Share of a step's memory time that goes to KV; by bytes where the rates are not measured."""
    whole, kv = modelled_step_seconds(load, rates), kv_step_seconds(load, rates)
    return load.kv_read_bytes / load.read_bytes if whole is None or kv is None else kv / whole


@dataclass(frozen=True)
class _Smaller:
    """Dtypes that store less than the present ones, each with its effect."""

    load: Load
    rates: KernelRates
    engine: Engine | None
    version: str

    @property
    def kv_share(self) -> float:
        return kv_share(self.load, self.rates)

    def kv(self) -> list[_Choice]:
        if self.engine is None or self.engine.is_ours:
            return _smaller_kv(self.load, self.rates)
        return self._switches("kvCache", self.load.kv_bits)

    def weights(self) -> list[_Choice]:
        if self.engine is None or self.engine.is_ours:
            return _smaller_weights(self.load, self.rates)
        return self._switches("weights", self.load.weights_bits)

    def _switches(self, lever: str, bits: float) -> list[_Choice]:
        """What the engine has that is smaller, the gentlest first; no kernel of it is measured, so no speed is claimed."""
        assert self.engine is not None
        found = []
        for switch in self.engine.switches:
            if switch.lever == lever and not switch.alias and switch.bits < 0.9 * bits and switch.is_in(self.version):
                then = self.load.switched(switch)
                effect = Effect(max(then.sessions_that_fit, 0.0) / self.load.sessions_that_fit, None)
                found.append(_Choice(switch.to, effect, switch.flag))
        return found


def _kv_for_room(smaller: _Smaller) -> Iterable[Advice]:
    for c in smaller.kv():
        if c.effect.sessions_ratio >= _WORTH_SESSIONS:
            yield Advice("kvCache", c.to, f"{_room(c.effect)}, {_speed(c.effect)}; {_QUALITY}", c.effect, c.flag)


def _kv_for_both(smaller: _Smaller) -> Iterable[Advice]:
    gains = [c for c in smaller.kv() if c.effect.sessions_ratio >= _WORTH_SESSIONS]
    # What makes a step slower trades one wall for the other: last.
    for c in sorted(gains, key=lambda c: (c.effect.step_ratio or 1.0) > 1.0):
        why = f"{_room(c.effect)}, {_speed(c.effect)}: both walls; {_QUALITY}"
        yield Advice("kvCache", c.to, why, c.effect, c.flag)


def _kv_for_speed(smaller: _Smaller) -> Iterable[Advice]:
    share = f"KV is {smaller.kv_share:.0%} of a step"
    for c in _fastest(smaller.kv()):
        yield Advice("kvCache", c.to, f"{share}: {_speed(c.effect)}, {_room(c.effect)}; {_QUALITY}", c.effect, c.flag)


def _weights_for_speed(smaller: _Smaller) -> Iterable[Advice]:
    share = f"weights are {1 - smaller.kv_share:.0%} of a step"
    for c in _fastest(smaller.weights()):
        yield Advice("weights", c.to, f"{share}: {_speed(c.effect)}, {_room(c.effect)}; {_QUALITY}", c.effect, c.flag)


def _fastest(choices: Iterable[_Choice]) -> list[_Choice]:
    gains = [c for c in choices if c.effect.step_ratio is None or c.effect.step_ratio <= _WORTH_STEP]
    return sorted(gains, key=lambda c: c.effect.step_ratio or 1.0)


def _weights_for_room(smaller: _Smaller) -> Iterable[Advice]:
    for c in smaller.weights():
        if c.effect.sessions_ratio >= 1 + _FREED_SHARE:
            why = f"frees memory for KV: {_room(c.effect)}, {_speed(c.effect)}; {_QUALITY}"
            yield Advice("weights", c.to, why, c.effect, c.flag)


def _batch(verdict: WallVerdict, load: Load, rates: KernelRates) -> Iterable[Advice]:
    used = verdict.value("kv_used")
    if used is None or used >= _ROOM_FOR_BATCH:
        return
    ratio = step_ratio(load, replace(load, sessions=2 * load.sessions), rates)
    gain = f": twice the batch gives {2 / ratio:.1f} x the tokens a second" if ratio else ""
    why = f"weights are read once a step for all sessions, and pages are {used:.0%} used{gain}"
    yield Advice("batch", "more sessions a worker", why, Effect(1.0, ratio) if ratio else None)


def _replica(verdict: WallVerdict, load: Load, rates: KernelRates) -> Advice:
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
    now = f"{load.stored.weights or load.precision.weights}/{load.stored.kv or load.precision.kv_form}"
    why = (
        f"no smaller dtype than {now} is faster or roomier, of those that the engine has and by the rates measured here"
    )
    return Advice("nothing", "-", why)


def _nothing_short(verdict: WallVerdict) -> Advice:
    short = "nothing is short" if verdict.wall is Wall.IDLE else "what is short is the host's"
    return Advice("nothing", "-", f"{short}: neither precision nor a replica changes it")


def _limit(verdict: WallVerdict, engine: Engine | None) -> Advice:
    """Sessions wait although there is room: the limit on a batch holds them."""
    flag = engine.sessions if engine else ""
    used = verdict.value("kv_used")
    room = "" if used is None else f", and pages are {used:.0%} used"
    why = f"sessions wait for a place in the batch{room}: let it have more"
    return Advice("sessions", "more sessions in a batch", why, flag=f"{flag}, raised" if flag else "")


def _one_more(load: Load | None) -> Advice:
    count = load.replicas if load else 1
    why = f"each worker has {count / (count + 1):.0%} of the sessions and tokens"
    return Advice("replica", f"{count + 1} replicas", why)


def _smaller_kv(load: Load, rates: KernelRates) -> list[_Choice]:
    """KV dtypes that store less, the gentlest first: of those with equal bits the fastest, or where that is unknown
    the most exact.
    """
    best: dict[int, _Choice] = {}
    now = KV_FORMATS[load.precision.kv_cache].payload_bits
    for name in _KV_BY_QUALITY:
        dtype = KV_FORMATS[name]
        if not dtype.built or dtype.payload_bits >= now or (effect := _kv_effect(load, rates, name)) is None:
            continue
        held = best.get(dtype.payload_bits)
        # Equal speed within the noise of a measurement: the more exact one stays.
        if held is None or _is_faster(effect, held.effect):
            best[dtype.payload_bits] = _Choice(name, effect)
    return list(best.values())


def _kv_effect(load: Load, rates: KernelRates, name: str) -> Effect | None:
    """None where the model's cache (of latents) or its skipped layers rule the format out."""
    try:
        return predict(load, rates, kv_cache=name)
    except ValueError:
        return None


def _smaller_weights(load: Load, rates: KernelRates) -> list[_Choice]:
    now = load.precision.element_bytes
    found = {n: load.precision.at(weights=n).element_bytes for n in _WEIGHTS_BY_BYTES if WEIGHT_FORMATS[n].built}
    return [_Choice(name, predict(load, rates, weights=name)) for name, size in found.items() if size < now]


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
