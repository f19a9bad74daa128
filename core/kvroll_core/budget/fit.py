"""Whether so many sessions of so many tokens fit, how many would, and how memory grows with them."""

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from math import ceil

from kvroll_core.budget.cache import HeadKv, pages_for
from kvroll_core.budget.ranks import Ranks, WindowBytes, stage_shapes, window_bytes
from kvroll_core.budget.shape import ModelShape
from kvroll_core.budget.worker import activations_bytes, parameters_bytes
from kvroll_core.precision.formats import (
    HEAD_SAME,
    PAGE_TOKENS,
    WEIGHT_BLOCK,
    WeightFormat,
    find_kv_format,
    find_weight_format,
)
from kvroll_core.precision.kv_form import KvForm

_STRIDE_TOKENS = 4096
"""A multiple of every page, latent and sealing of ours."""
_SCALED_BY_TENSOR_ELSEWHERE = ("fp8_e4m3", "int8")
_MOST_SESSIONS = 1 << 20
"""Of a model that keeps nothing."""


@dataclass(frozen=True)
class Ask:
    """Traffic at a precision: `sessions` at once of `tokens` each (prompt and answer). `device_bytes` None: nothing
    to fit into.

    `headroom_fraction` of the device is left to the runtime and transfers; `weights_bytes` overrides what we count;
    `residual_tokens` stay 16-bit in the sealed formats (kivi), `kv_skip_layers` in all. `ranks`: how the model is spread over devices;
    `device_bytes` and `kv_memory_bytes`, a KV pool of a given size, are those of one. `page_tokens`: of a page (vLLM: a block).
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
    ranks: Ranks = field(default=Ranks())
    page_tokens: int = PAGE_TOKENS
    kv_memory_bytes: int | None = None


@dataclass(frozen=True)
class Fit:
    """The answer, in bytes: of the whole model, and `rank_*` of one device of those that it is spread over.

    A session of n tokens, where n is no less than any window, keeps `kv_bytes_per_token` x n + `kv_bytes_constant_per_session`;
    `windows` says which of it does not grow because of a window. `kv_bytes_stored` is that at the asked length, `kv_bytes_per_session`
    what its pages take. `pool_tokens`: tokens that a pool of `kv_memory_bytes` holds, None where a session's bytes are not in proportion
    to its tokens; `concurrency`: sessions of that length in it, as a fraction. `kv_bytes_per_token_one_scale`: of an 8-bit format, the
    same where an engine keeps one scale for a tensor (vLLM, SGLang) and not one for each token and head; None of other formats.
    """

    ask: Ask
    weights_bytes: int
    activations_bytes: int
    kv_bytes_per_token: float
    kv_bytes_constant_per_session: float
    kv_bytes_stored: float
    kv_bytes_per_session: float
    windows: tuple[WindowBytes, ...]
    pages: int
    usable_bytes: int | None
    max_sessions: int | None
    rank_weights_bytes: int
    rank_kv_bytes_per_token: float
    rank_kv_bytes_per_session: float
    pool_tokens: int | None = None
    concurrency: float | None = None
    kv_bytes_per_token_one_scale: float | None = None

    @property
    def kv_bytes_total(self) -> float:
        """Bytes of all sessions' pages."""
        return self.kv_bytes_per_session * self.ask.sessions

    @property
    def total_bytes(self) -> float:
        """Weights, activations and KV."""
        return self.weights_bytes + self.activations_bytes + self.kv_bytes_total

    @property
    def rank_total_bytes(self) -> float:
        """Weights, activations and KV of one device: the sessions are dealt out to the data-parallel replicas."""
        here = -(-self.ask.sessions // self.ask.ranks.data)
        return self.rank_weights_bytes + self.activations_bytes + self.rank_kv_bytes_per_session * here

    @property
    def fits(self) -> bool | None:
        """Whether all of it is at most what each device leaves us; None without a device."""
        if self.ask.kv_memory_bytes is not None:
            return None if self.max_sessions is None else self.ask.sessions <= self.max_sessions
        return None if self.usable_bytes is None else self.rank_total_bytes <= self.usable_bytes


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
        SplitError: the model does not divide by the ranks.
        SkipLayersError: a layer that the model has not.
        ValueError: a format that this attention, or one with skipped layers, cannot have.
    """
    stages = stage_shapes(shape, ask.ranks)
    session = _session_bytes(shape, ask, ask.tokens, whole_pages=True)
    rank_session = max(_session_bytes(stage, ask, ask.tokens, whole_pages=True) for stage in stages)
    slope, constant = _growth(shape, ask)
    rank_slope = max(_growth(stage, ask)[0] for stage in stages)
    weights = _weights_bytes(shape, find_weight_format(ask.weights), ask)
    rank_weights = -(-weights // (ask.ranks.tensor * ask.ranks.pipeline))
    usable = None if ask.device_bytes is None else int(ask.device_bytes * (1 - ask.headroom_fraction))
    pool = ask.kv_memory_bytes
    most = None if usable is None else _max_sessions(shape, ask, usable, rank_weights, rank_session) * ask.ranks.data
    if pool is not None:
        most = int(pool // rank_session) * ask.ranks.data
    return Fit(
        ask=ask,
        weights_bytes=weights,
        activations_bytes=_activations(shape, ask, -(-ask.sessions // ask.ranks.data)),
        kv_bytes_per_token=slope,
        kv_bytes_constant_per_session=constant,
        kv_bytes_stored=_session_bytes(shape, ask, ask.tokens, whole_pages=False),
        kv_bytes_per_session=session,
        windows=window_bytes(shape, ask.kv_cache, ask.kv_skip_layers),
        pages=pages_for(ask.tokens, ask.page_tokens) * ask.sessions,
        usable_bytes=usable,
        max_sessions=most,
        rank_weights_bytes=rank_weights,
        rank_kv_bytes_per_token=rank_slope,
        rank_kv_bytes_per_session=rank_session,
        pool_tokens=None if pool is None or constant else _pool_tokens(pool, rank_slope, ask.page_tokens),
        concurrency=None if pool is None else pool / rank_session,
        kv_bytes_per_token_one_scale=_one_scale(shape, ask, slope),
    )


def _one_scale(shape: ModelShape, ask: Ask, slope: float) -> float | None:
    if ask.kv_cache not in _SCALED_BY_TENSOR_ELSEWHERE:
        return None
    kept = shape.kept(KvForm.of(ask.kv_cache, ask.kv_skip_layers))
    own = sum(g.scale_bytes(find_kv_format(name)) for name, g in kept if isinstance(g, HeadKv) and not g.window)
    return slope - own


def _pool_tokens(pool: int, token_bytes: float, page_tokens: int) -> int:
    return int(pool // (token_bytes * page_tokens)) * page_tokens


def _growth(shape: ModelShape, ask: Ask) -> tuple[float, float]:
    """Bytes that one more token costs a long session, and what such a session keeps besides."""
    widest = max((g.window or 0 for g in shape.kv_groups if isinstance(g, HeadKv)), default=0)
    # Past every window, at whole pages, latents and sealed pages; both ends are exact in a double.
    low = -(-(widest + ask.residual_tokens + 1) // _STRIDE_TOKENS) * _STRIDE_TOKENS + _STRIDE_TOKENS
    first, second = (_session_bytes(shape, ask, n, whole_pages=False) for n in (low, low + _STRIDE_TOKENS))
    slope = (second - first) / _STRIDE_TOKENS
    return slope, first - slope * low


def sweep(shape: ModelShape, ask: Ask, most_sessions: int, points: int = 64) -> tuple[Point, ...]:
    """Memory of one device at up to `points` concurrencies from none to `most_sessions`."""
    step = max(1, -(-most_sessions // points))
    counts = [*range(0, most_sessions, step), most_sessions]
    one = reckon(shape, replace(ask, sessions=1))
    fixed, session, replicas = one.rank_weights_bytes, one.rank_kv_bytes_per_session, ask.ranks.data
    here = {n: -(-n // replicas) for n in counts}
    return tuple(Point(n, fixed + _activations(shape, ask, here[n]) + here[n] * session) for n in counts)


def _session_bytes(shape: ModelShape, ask: Ask, tokens: int, *, whole_pages: bool) -> float:
    kept = shape.kept(KvForm.of(ask.kv_cache, ask.kv_skip_layers))
    residual = ask.residual_tokens
    return sum(
        group.session_bytes(
            tokens, find_kv_format(name), residual_tokens=residual, whole_pages=whole_pages, page_tokens=ask.page_tokens
        )
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
    most = int(usable / session) + 2 if session else _MOST_SESSIONS
    return max(bisect_right(range(most), usable, key=need) - 1, 0)
