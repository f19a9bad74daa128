"""How long a decode step takes at a precision, and how many sessions fit: the model behind every predicted effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvroll_core.budget import WEIGHT_BLOCK, ModelShape, layer_token_bytes
from kvroll_core.formats import find_kv_format, find_weight_format
from kvroll_core.wall.counters import Counters


@dataclass(frozen=True)
class Rates:
    """Stored bytes a second that the kernels of each dtype get through, measured on the device at a worker's start.

    Never bytes alone: fewer bits are read faster or slower than their ratio says, sometimes slower than the 16 bits
    they replace.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    kv: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """A worker at work: `sessions` in its batch of `tokens` context each, a KV pool of `pool_bytes`, one of `replicas`.

    `step_seconds` is the measured mean decode step, None where it is not known.
    """

    shape: ModelShape
    weights: str
    kv_cache: str
    sessions: float
    tokens: float
    pool_bytes: float
    step_seconds: float | None = None
    replicas: int = 1
    residual_tokens: int = 128

    @property
    def weights_bytes(self) -> float:
        """Bytes that the matrices take, read or not."""
        return self.shape.matrix_elements * find_weight_format(self.weights).element_bytes(WEIGHT_BLOCK)

    @property
    def weights_read_bytes(self) -> float:
        """Bytes of matrices that a step reads: the experts that its rows are routed to, everything else once."""
        return self.shape.read_elements(self.sessions) * find_weight_format(self.weights).element_bytes(WEIGHT_BLOCK)

    @property
    def session_bytes(self) -> float:
        """KV bytes of a session of the mean length."""
        kv = find_kv_format(self.kv_cache)
        tokens = max(1, round(self.tokens))
        return layer_token_bytes(self.shape.kv_groups, kv, tokens, self.residual_tokens) * tokens

    @property
    def kv_read_bytes(self) -> float:
        """KV bytes that a decode step reads."""
        return self.sessions * self.session_bytes

    @property
    def sessions_that_fit(self) -> float:
        """Sessions of the mean length that the pool holds."""
        return self.pool_bytes / self.session_bytes


@dataclass(frozen=True)
class Effect:
    """What a change does, as ratios to now: sessions that fit, and seconds of a step at the same batch (None: its
    speed is not measured here).
    """

    sessions_ratio: float
    step_ratio: float | None


def modelled_step_seconds(load: Load, rates: Rates) -> float | None:
    """Seconds of a decode step that reads its weights, the 16-bit head and its KV, each at its dtype's rate; None
    where one is not measured.
    """
    weights, kv = rates.weights.get(load.weights), rates.kv.get(load.kv_cache)
    # The head stays 16-bit, so it is read at the 16-bit rate at every weight dtype.
    head_rate = rates.weights.get("bf16", weights)
    if not weights or not kv or not head_rate:
        return None
    head = 2 * load.shape.vocab * load.shape.hidden / head_rate
    return load.weights_read_bytes / weights + head + load.kv_read_bytes / kv


def predict(load: Load, rates: Rates, *, weights: str | None = None, kv_cache: str | None = None) -> Effect:
    """What another precision does to this load.

    What the measured step takes beyond the model (launches, the host) stays as it is. Memory that smaller weights
    free goes to the pool.
    """
    changed = replace(load, weights=weights or load.weights, kv_cache=kv_cache or load.kv_cache)
    changed = replace(changed, pool_bytes=load.pool_bytes + load.weights_bytes - changed.weights_bytes)
    sessions = max(changed.sessions_that_fit, 0.0) / load.sessions_that_fit
    return Effect(sessions, step_ratio(load, changed, rates))


def step_ratio(now: Load, then: Load, rates: Rates) -> float | None:
    """Seconds of a step then over now."""
    before, after = modelled_step_seconds(now, rates), modelled_step_seconds(then, rates)
    if before is None or after is None or before <= 0:
        return None
    step = max(now.step_seconds or before, before)
    return (step - before + after) / step


def with_model(counters: Counters, load: Load) -> Counters:
    """The counters, with bytes and operations reckoned from the load where the engine does not tell them.

    Bytes: steps x (weights read + KV of the mean batch), attention's own operations left out. Without a step counter
    a step gives each session a token.
    """
    steps = counters.steps
    if steps is None and counters.running:
        steps = counters.generated_tokens / counters.running
    read = None if steps is None else steps * (load.weights_read_bytes + load.kv_read_bytes)
    flops = load.shape.token_flops * (counters.prompt_tokens + counters.generated_tokens)
    return replace(
        counters,
        read_bytes=counters.read_bytes if counters.read_bytes is not None else read,
        flops=counters.flops if counters.flops is not None else flops,
    )
