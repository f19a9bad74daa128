"""From an engine's series to its verdict and advice, and from those of its workers to a pool's."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kvroll_core.budget import ModelShape
from kvroll_core.precision.codec import read_labels
from kvroll_core.precision.precision import Precision
from kvroll_core.wall.advice import Advice, recommend
from kvroll_core.wall.counters import Counters, Machine, pooled
from kvroll_core.wall.engine import Engine, engine_named
from kvroll_core.wall.load import Load
from kvroll_core.wall.page import Found, engines_in
from kvroll_core.wall.series import MODEL_INFO, Sample, SeriesError, View
from kvroll_core.wall.step import KernelRates, with_model, with_weights
from kvroll_core.wall.stored import DtypeError, Stored
from kvroll_core.wall.verdict import BANDWIDTH, WallVerdict, classify, pages_full_at
from kvroll_core.wall.window import counters_between


@dataclass(frozen=True)
class Told:
    """What is known beside the series: the model and its precision in the engine's own words, a device, how many of them the engine
    spans, the replicas, how full its KV pool is and what it holds where the engine does not tell it, and its version. `checkpoint` is what
    the weights are stored in by the model's own files, by name and bits of an element.
    """

    shape: ModelShape | None = None
    weights: str | None = None
    kv_cache: str | None = None
    machine: Machine = field(default_factory=Machine)
    replicas: int = 1
    devices: int = 1
    kv_used: float | None = None
    kv_tokens: float | None = None
    version: str = ""
    checkpoint: tuple[str, float] | None = None


@dataclass(frozen=True)
class Judged:
    """A verdict and its advice, and the counters behind both."""

    counters: Counters
    machine: Machine
    load: Load | None
    verdict: WallVerdict
    advice: tuple[Advice, ...]
    engine: Engine = field(default_factory=lambda: engine_named("kvroll"))
    version: str = ""


def judge(samples: Sequence[Sample], told: Told) -> Judged:
    """The verdict on the one engine of a page by the samples of a window.

    Raises:
        SeriesError: its series do not tell what it does, or are of several engines.
    """
    found = engines_in(samples)
    if len(found) > 1:
        raise SeriesError(f"expected one engine, found {len(found)}: {', '.join(f.name for f in found)}")
    return judge_engine(found[0], told)


def judge_engine(found: Found, told: Told) -> Judged:
    """The verdict on an engine of a page.

    Raises:
        SeriesError: its series do not tell what it does.
    """
    counters, last = counters_between(found.views), found.views[-1]
    if counters.kv_used is None and told.kv_used is not None:
        counters = _with_kv_used(found.views, counters, told.kv_used)
    measured = last.sample.machine()
    machine = Machine(
        told.machine.bytes_per_second or measured.bytes_per_second,
        told.machine.flops_per_second or measured.flops_per_second,
    )
    load = _load(counters, last, told)
    if load is not None:
        counters = with_model(counters, load, told.devices)
    elif told.shape is not None:
        counters = _with_weights(counters, last, told, machine)
    return _judged(found.engine, counters, machine, load, last.sample.rates(), told.version)


def judge_pool(workers: Sequence[Judged], rates: KernelRates) -> Judged:
    """A pool as its mean worker; its devices are taken to be alike."""
    load = next((w.load for w in workers if w.load is not None), None)
    first = workers[0]
    return _judged(first.engine, pooled([w.counters for w in workers]), first.machine, load, rates, first.version)


def _judged(
    engine: Engine, counters: Counters, machine: Machine, load: Load | None, rates: KernelRates, version: str
) -> Judged:
    verdict = classify(counters, machine, engine)
    advice = recommend(verdict, load, rates, engine, version)
    return Judged(counters, machine, load, verdict, advice, engine, version)


def _with_kv_used(views: Sequence[View], counters: Counters, used: float) -> Counters:
    """The counters where the asker says how full the pages are: who waits then waits for room, or for a slot."""
    waits = [bool(v.total("waiting")) and used >= pages_full_at(v.total("running") or 0.0) for v in views]
    return replace(counters, kv_used=used, waiting_for_room=sum(waits) / len(waits))


def _load(counters: Counters, view: View, told: Told) -> Load | None:
    """The mean batch, where the model is known and something runs: contexts are the pages in use over the sessions
    that run.
    """
    pool_tokens = view.pool_tokens() or told.kv_tokens
    if told.shape is None or not counters.running or not pool_tokens or not counters.kv_used:
        return None
    precision, stored = _precision(view, told)
    if precision is None:
        return None
    tokens = counters.kv_used * pool_tokens / counters.running
    steps, busy = counters.steps, counters.busy_seconds
    load = Load(
        shape=told.shape,
        precision=precision,
        sessions=counters.running,
        tokens=tokens,
        pool_bytes=0.0,
        step_seconds=busy / steps if busy and steps else counters.inter_token_mean_seconds,
        replicas=told.replicas,
        kernel_share=counters.step_kernel_share,
        stored=stored,
    )
    return replace(load, pool_bytes=pool_tokens * load.session_bytes / max(1, round(tokens)))


def _with_weights(counters: Counters, view: View, told: Told, machine: Machine) -> Counters:
    """Where it is not known what sessions hold: a step reads the weights at least. That tells a bandwidth wall where they alone make one,
    and nothing where they do not.
    """
    precision, stored = _precision(view, told)
    if told.shape is None or precision is None or not counters.running:
        return counters
    load = Load(told.shape, precision, sessions=counters.running, tokens=0.0, pool_bytes=0.0, stored=stored)
    least = with_weights(counters, load.weights_read_bytes, told.shape.token_flops, told.devices)
    read = classify(least, machine).value("bandwidth_used")
    over = read is not None and read >= BANDWIDTH
    return least if over or counters.read_bytes is not None else replace(least, read_bytes=None)


def _precision(view: View, told: Told) -> tuple[Precision | None, Stored]:
    """What the asker says, else what the engine tells, else what most run; None where nothing can be said of the weights. A dtype of the
    engine's own is kept beside it: its bytes are not those of our table.
    """
    info, engine = view.sample.info(MODEL_INFO), view.engine
    named = told.weights or info.get("weights")
    # What most run, where nobody says otherwise; llama.cpp's files are of any precision.
    weights = named or (None if engine.name == "llamacpp" and told.checkpoint is None else "bf16")
    kv_cache = told.kv_cache or info.get("kv_cache") or view.cache_dtype() or engine.dtype
    if weights is None:
        return None, Stored()
    try:
        stored = Stored.of(engine, weights, kv_cache)
    except DtypeError:
        if told.weights or told.kv_cache:
            raise
        return None, Stored()
    if named is None and told.checkpoint is not None:
        stored = replace(stored, weights=told.checkpoint[0], weights_bits=told.checkpoint[1])
    named_as_ours = {"weights": stored.plain_weights or weights, "kv_cache": stored.plain_kv or kv_cache}
    return read_labels({**info, **named_as_ours}), stored
