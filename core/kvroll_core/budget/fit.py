"""Whether so many sessions of so many tokens fit, how many would, and how memory grows with them."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from math import ceil

from kvroll_core.budget.cache import pages_for
from kvroll_core.budget.shape import ModelShape
from kvroll_core.budget.worker import activations_bytes, parameters_bytes
from kvroll_core.formats import HEAD_SAME, WEIGHT_BLOCK, WeightFormat, find_kv_format, find_weight_format
from kvroll_core.kv_form import KvForm


@dataclass(frozen=True)
class Ask:
    """Traffic at a precision: `sessions` at once of `tokens` each (prompt and answer). `device_bytes` None: nothing
    to fit into.

    `headroom_fraction` of the device is left to the runtime and transfers; `weights_bytes` overrides what we count;
    `residual_tokens` stay 16-bit in the sealed formats (kivi), `kv_skip_layers` in all.
    """

    weights: str
    kv_cache: str
    sessions: int
    tokens: int
    device_bytes: int | None = None
    headroom_fraction: float = 0.1
    max_batch_tokens: int = 256
    residual_tokens: int = 128
    weights_bytes: int | None = None
    weight_block: int = WEIGHT_BLOCK
    head: str = HEAD_SAME
    kv_skip_layers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fit:
    """The answer, in bytes. `kv_bytes_per_token` is the mean over a session of that length, `kv_bytes_per_session`
    what its pages take.
    """

    ask: Ask
    weights_bytes: int
    activations_bytes: int
    kv_bytes_per_token: float
    kv_bytes_per_session: float
    pages: int
    usable_bytes: int | None
    max_sessions: int | None

    @property
    def kv_bytes_total(self) -> float:
        """Bytes of all sessions' pages."""
        return self.kv_bytes_per_session * self.ask.sessions

    @property
    def total_bytes(self) -> float:
        """Weights, activations and KV."""
        return self.weights_bytes + self.activations_bytes + self.kv_bytes_total

    @property
    def fits(self) -> bool | None:
        """Whether all of it is at most what the device leaves us; None without a device."""
        return None if self.usable_bytes is None else self.total_bytes <= self.usable_bytes


@dataclass(frozen=True)
class Point:
    """Memory at a concurrency."""

    sessions: int
    total_bytes: float


def reckon(shape: ModelShape, ask: Ask) -> Fit:
    """What the traffic costs, and the largest number of such sessions that fits. Formats that no engine of ours runs
    yet are reckoned too.

    Raises:
        UnknownFormatError: not a dtype word.
        ShapeError: the model's weights cannot be counted and were not given.
        SkipLayersError: a layer that the model has not.
        ValueError: a format that this attention, or one with skipped layers, cannot have.
    """
    session = _session_bytes(shape, ask, whole_pages=True)
    weights = _weights_bytes(shape, find_weight_format(ask.weights), ask)
    usable = None if ask.device_bytes is None else int(ask.device_bytes * (1 - ask.headroom_fraction))
    return Fit(
        ask=ask,
        weights_bytes=weights,
        activations_bytes=_activations(shape, ask, ask.sessions),
        kv_bytes_per_token=_session_bytes(shape, ask, whole_pages=False) / ask.tokens,
        kv_bytes_per_session=session,
        pages=pages_for(ask.tokens) * ask.sessions,
        usable_bytes=usable,
        max_sessions=None if usable is None else _max_sessions(shape, ask, usable, weights, session),
    )


def sweep(shape: ModelShape, ask: Ask, most_sessions: int, points: int = 64) -> tuple[Point, ...]:
    """Memory at up to `points` concurrencies from none to `most_sessions`."""
    step = max(1, -(-most_sessions // points))
    counts = [*range(0, most_sessions, step), most_sessions]
    one = reckon(shape, replace(ask, sessions=1))
    fixed, session = one.weights_bytes, one.kv_bytes_per_session
    return tuple(Point(n, fixed + _activations(shape, ask, n) + n * session) for n in counts)


def _session_bytes(shape: ModelShape, ask: Ask, *, whole_pages: bool) -> float:
    kept = shape.kept(KvForm.of(ask.kv_cache, ask.kv_skip_layers))
    residual = ask.residual_tokens
    return sum(
        group.session_bytes(ask.tokens, find_kv_format(name), residual_tokens=residual, whole_pages=whole_pages)
        for name, group in kept
    )


def _weights_bytes(shape: ModelShape, dtype: WeightFormat, ask: Ask) -> int:
    if ask.weights_bytes is not None:
        return ask.weights_bytes
    return parameters_bytes(shape, dtype, ask.weight_block, ask.head)


def _activations(shape: ModelShape, ask: Ask, sessions: int) -> int:
    return activations_bytes(shape, max(ask.max_batch_tokens, sessions), sessions)


def _max_sessions(shape: ModelShape, ask: Ask, usable: int, weights: int, session: float) -> int:
    def need(sessions: int) -> int:
        return ceil(weights + _activations(shape, ask, sessions) + sessions * session)

    # More sessions never need less, so the last that fits is found by halving.
    return max(bisect_right(range(int(usable / session) + 2), usable, key=need) - 1, 0)
