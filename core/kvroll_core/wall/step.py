"""How long a decode step takes at a precision, and how many sessions fit: the model behind every predicted effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvroll_core.wall.counters import Counters
from kvroll_core.wall.load import Load


@dataclass(frozen=True)
class KernelRates:
    """Stored bytes a second that the kernels of each dtype get through, measured on the device at a worker's start.

    Never bytes alone: fewer bits are read faster or slower than their ratio says, sometimes slower than the 16 bits
    they replace.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    kv: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Effect:
    """What a change does, as ratios to now: sessions that fit, and seconds of a step at the same batch (None: its
    speed is not measured here).
    """

    sessions_ratio: float
    step_ratio: float | None


def modelled_step_seconds(load: Load, rates: KernelRates) -> float | None:
    """Seconds of a decode step that reads its matrices, its head and its KV, each at its dtype's rate; None where one
    is not measured.
    """
    weights, kv = rates.weights.get(load.precision.weights), kv_step_seconds(load, rates)
    # Where the dtype of the head was not measured, it is taken to be read as fast as the matrices.
    head = rates.weights.get(load.precision.head_dtype, weights)
    if not weights or not head or kv is None:
        return None
    return load.matrix_read_bytes / weights + load.head_read_bytes / head + kv


def kv_step_seconds(load: Load, rates: KernelRates) -> float | None:
    """The part of it that reads KV."""
    total = 0.0
    for name, held in load.session_bytes_by_format.items():
        if not (rate := rates.kv.get(name)):
            return None
        total += load.sessions * held / rate
    return total


def predict(load: Load, rates: KernelRates, *, weights: str | None = None, kv_cache: str | None = None) -> Effect:
    """What another precision does to this load; skipped layers stay skipped.

    What a step takes beyond its kernels (launches, the host) stays as it is. Memory that smaller weights free goes to
    the pool.

    Raises:
        ValueError: the model's cache cannot be kept in that format.
    """
    now = load.precision
    changed = load.at(now.at(weights=weights, kv_cache=kv_cache))
    sessions = max(changed.sessions_that_fit, 0.0) / load.sessions_that_fit
    return Effect(sessions, step_ratio(load, changed, rates))


def step_ratio(now: Load, then: Load, rates: KernelRates) -> float | None:
    """Seconds of a step then over now.

    Where kernels count their time, that part follows the model: under load they run slower than alone, all dtypes
    alike. Elsewhere the part that the model explains does. The rest is the host's and stays.
    """
    before, after = modelled_step_seconds(now, rates), modelled_step_seconds(then, rates)
    if before is None or after is None or before <= 0:
        return None
    share = now.kernel_share
    if share is None:
        share = before / max(now.step_seconds or before, before)
    return 1 - share * (1 - after / before)


def with_model(counters: Counters, load: Load, devices: int = 1) -> Counters:
    """The counters, with bytes and operations of a device reckoned from the load where the engine does not tell them.

    Bytes: steps x (weights, head and KV of the mean batch), attention's own operations left out; each of `devices` that the engine spans
    has its share. Without a step counter a step gives each session a token. An engine that counts no tokens is left as it is.
    """
    read, flops = counters.read_bytes, counters.flops
    steps = _steps(counters)
    if read is None and steps is not None:
        read = steps * load.read_bytes / devices
    if flops is None and counters.tells_tokens:
        flops = load.shape.token_flops * (counters.prompt_tokens + counters.generated_tokens) / devices
    return replace(counters, read_bytes=read, flops=flops)


def with_weights(counters: Counters, weights_bytes: float, token_flops: float, devices: int = 1) -> Counters:
    """The counters of an engine whose sessions' KV is not known, with what its steps read at least: the weights."""
    steps = _steps(counters)
    read = counters.read_bytes if counters.read_bytes is not None or steps is None else steps * weights_bytes / devices
    flops = counters.flops
    if flops is None and counters.tells_tokens:
        flops = token_flops * (counters.prompt_tokens + counters.generated_tokens) / devices
    return replace(counters, read_bytes=read, flops=flops)


def _steps(counters: Counters) -> float | None:
    if counters.steps is not None:
        return counters.steps
    return counters.generated_tokens / counters.running if counters.tells_tokens and counters.running else None
