"""The memory of one worker of ours: what its page pool holds, or why a spec cannot fit."""

from dataclasses import dataclass, field
from typing import NoReturn

from kvroll_core.budget.cache import pages_for
from kvroll_core.budget.quantity import format_bytes
from kvroll_core.budget.shape import ModelShape
from kvroll_core.budget.window import PageWindow, page_window
from kvroll_core.precision.formats import (
    HEAD_SAME,
    PAGE_TOKENS,
    WEIGHT_BLOCK,
    WeightFormat,
    head_dtype,
    kv_format,
    weight_format,
)
from kvroll_core.precision.precision import Precision
from kvroll_core.precision.sealing import OPEN_FORMAT, UNSEALED, Sealing

_CHANNEL_SCALE_BYTES = 4


class BudgetError(ValueError):
    """A spec that cannot fit; the message says what is needed, what there is and what would fit."""


@dataclass(frozen=True)
class BudgetRequest:
    """A precision and its limits. `kv_memory_bytes` None: whatever the memory limit leaves after weights and activations."""

    precision: Precision
    max_model_len: int
    max_sessions: int
    max_batch_tokens: int
    kv_memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    headroom_fraction: float = 0.1  # of the memory limit, for the interpreter, libraries and transfers


@dataclass(frozen=True)
class Budget:
    """The memory of one worker, in bytes; `pages` counts usable pages, the null page comes on top. `window`: which of its
    pages a session needs at once.

    Of a sealed format `pages` are the sealed ones, and `open_pages` (a null page on top here too) the 16-bit ones of the newest tokens.
    """

    weights_bytes: int
    activations_bytes: int
    kv_token_bytes: float
    page_bytes: int
    pages: int
    max_model_len: int
    window: PageWindow = field(default=PageWindow())
    sealing: Sealing = UNSEALED
    open_pages: int = 0
    open_page_bytes: int = 0

    @property
    def kv_bytes(self) -> int:
        """Bytes of the page pools with their null pages."""
        opened = (self.open_pages + 1) * self.open_page_bytes if self.sealing.seals else 0
        return (self.pages + 1) * self.page_bytes + opened

    @property
    def tokens(self) -> int:
        """Tokens that the pools hold."""
        return (self.pages + self.open_pages) * PAGE_TOKENS

    @property
    def sessions_at_max_len(self) -> int:
        """Sessions of `max_model_len` tokens that fit at once."""
        return self.sessions_of(self.max_model_len)

    def sessions_of(self, tokens: int) -> int:
        """Sessions of so many tokens that fit at once."""
        if not self.pages:
            return 0
        if not self.sealing.seals:
            return self.pages // self.window.session_pages(tokens)
        needs = ((self.sealing.settled(tokens), self.pages), (self.sealing.opened(tokens), self.open_pages))
        return min(have // need for need, have in needs if need)

    def __str__(self) -> str:
        sealed = "sealed " if self.sealing.seals else ""
        opened = f" and {self.open_pages} open {OPEN_FORMAT} pages" if self.sealing.seals else ""
        return (
            f"weights {format_bytes(self.weights_bytes)} + activations {format_bytes(self.activations_bytes)}"
            f" + KV {format_bytes(self.kv_bytes)} ({self.pages} {sealed}pages{opened} of {PAGE_TOKENS} tokens,"
            f" {format_bytes(self.kv_token_bytes)} a token): {self.tokens} tokens in all,"
            f" {self.sessions_at_max_len} sessions at {self.max_model_len} tokens{self._windowed}"
        )

    @property
    def _windowed(self) -> str:
        held = self.window.session_pages(self.max_model_len)
        if held == pages_for(self.max_model_len):
            return ""
        return f" ({held} pages each: all layers look back on {self.window.tokens} tokens at most)"


def kv_token_bytes(shape: ModelShape, kv_cache: str) -> float:
    """Bytes of one cached token: layers x kv_heads x the format's bytes for K and V of one head."""
    return kv_format(kv_cache).token_bytes(layers=shape.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim)


def weights_bytes(shape: ModelShape, weights: str, *, block: int = WEIGHT_BLOCK, head: str = HEAD_SAME) -> int:
    """Bytes of all parameters: matrices in the weight dtype, the head in its own, the rest 16-bit (fp32 too where the dtype is)."""
    return parameters_bytes(shape, weight_format(weights), block, head)


def parameters_bytes(shape: ModelShape, dtype: WeightFormat, block: int = WEIGHT_BLOCK, head: str = HEAD_SAME) -> int:
    """The same for a dtype of the table, built or not."""
    table = shape.vocab * shape.hidden
    plain = (4 if dtype.name == "fp32" else 2) * (shape.plain_elements - table)
    return int(shape.matrix_elements * dtype.element_bytes(block)) + plain + head_bytes(shape, dtype.name, head)


def head_bytes(shape: ModelShape, weights: str, head: str = HEAD_SAME) -> int:
    """Bytes of the head, which each step with a token to sample reads once; a tied one is the embedding too.

    int8 has an fp32 scale for each token of the vocabulary.
    """
    row = {"fp32": 4 * shape.hidden, "bf16": 2 * shape.hidden, "int8": shape.hidden + _CHANNEL_SCALE_BYTES}
    return shape.vocab * row[head_dtype(weights, head)]


def activations_bytes(shape: ModelShape, rows: int, sampled_rows: int) -> int:
    """Bytes of the step's fp32 buffers: x, norm and o; q, k, v and attention; gate, up and their product; logits; rope tables."""
    queries = shape.heads * shape.head_dim
    row = 3 * shape.hidden + 2 * queries + 2 * shape.kv_heads * shape.head_dim + 3 * shape.intermediate
    logits = sampled_rows * (shape.vocab + 2 * shape.hidden)
    rope = shape.max_positions * shape.head_dim
    return 4 * (rows * row + logits + rope)


def plan_budget(shape: ModelShape, request: BudgetRequest) -> Budget:
    """The budget of a spec.

    Raises:
        BudgetError: weights, activations and pool exceed the memory limit, the pool holds no session of `max_model_len`,
            or the model keeps latents instead of K and V.
        SkipLayersError: a layer that the model has not.
        FormatNotBuiltError, UnknownFormatError: a dtype that this version cannot run.
    """
    _check_layout(shape)
    _check_length(shape, request)
    precision = request.precision
    kv_format(precision.kv_cache)
    sizes = {"layers": shape.layers, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
    page, token = precision.kv_form.page_bytes(**sizes), precision.kv_form.token_bytes(**sizes)
    weights = weights_bytes(shape, precision.weights, block=precision.weight_block, head=precision.head)
    activations = activations_bytes(shape, max(request.max_batch_tokens, request.max_sessions), request.max_sessions)
    pool, sealing = _pool_bytes(request, weights + activations), Sealing(precision.kv_cache, precision.residual_tokens)
    open_page = kv_format(OPEN_FORMAT).page_bytes(**sizes) if sealing.seals else 0
    least = (sealing.settled(request.max_model_len) + 1) * page  # of the longest session and the null page
    opened = _open_pages(sealing, min(pool // 2, pool - least), open_page, request.max_sessions)
    pages = max((pool - (opened + 1) * open_page) // page - 1, 0)
    window = page_window(shape, request.max_batch_tokens, precision.kv_cache)
    budget = Budget(weights, activations, token, page, pages, request.max_model_len, window, sealing, opened, open_page)
    if budget.sessions_at_max_len == 0:
        _refuse_pool(budget, request, pool)
    return budget


def _open_pages(sealing: Sealing, most_bytes: int, page_bytes: int, max_sessions: int) -> int:
    """As many as all sessions need, but of at most so many bytes, or else what one session needs."""
    if not sealing.seals:
        return 0
    most = most_bytes // page_bytes - 1
    return min(max_sessions * sealing.open_pages, max(most, sealing.open_pages))


def _check_layout(shape: ModelShape) -> None:
    if shape.latent or shape.compressed:
        raise BudgetError(
            "a worker keeps K and V of heads in its pages; found latent attention (MLA), which it does not run:"
            " reckon it with `kvroll budget`"
        )


def _check_length(shape: ModelShape, request: BudgetRequest) -> None:
    if not 2 <= request.max_model_len <= shape.max_positions:
        raise BudgetError(
            f"max_model_len {request.max_model_len} is not possible: the model knows {shape.max_positions} positions;"
            f" use 2 to {shape.max_positions}"
        )


def _pool_bytes(request: BudgetRequest, fixed: int) -> int:
    limit = request.memory_limit_bytes
    if limit is None:
        if request.kv_memory_bytes is None:
            raise BudgetError("neither a KV memory size nor a memory limit is known; set the KV memory")
        return request.kv_memory_bytes
    usable = int(limit * (1 - request.headroom_fraction))
    pool = usable - fixed if request.kv_memory_bytes is None else request.kv_memory_bytes
    if fixed + pool > usable or pool <= 0:
        left = max(usable - fixed, 0)
        advice = (
            f"a KV memory of {format_bytes(left)} would fit"
            if left
            else "raise the memory limit or use smaller weights"
        )
        raise BudgetError(
            f"needs {format_bytes(fixed)} for weights ({request.precision.weights}) and activations + {format_bytes(max(pool, 0))} for KV"
            f" = {format_bytes(fixed + max(pool, 0))}; there are {format_bytes(usable)}"
            f" ({format_bytes(limit)} less {request.headroom_fraction:.0%} headroom); {advice}"
        )
    return pool


def _refuse_pool(budget: Budget, request: BudgetRequest, pool: int) -> None:
    if budget.sealing.seals:
        _refuse_sealed_pool(budget, request, pool)
    need = budget.window.session_pages(request.max_model_len)
    fits = f"max_model_len {budget.tokens}, or " if budget.tokens >= 2 else ""
    raise BudgetError(
        f"one session of max_model_len {request.max_model_len} needs {need} pages + the null page"
        f" x {format_bytes(budget.page_bytes)} = {format_bytes((need + 1) * budget.page_bytes)} of KV ({request.precision.kv_form});"
        f" there are {format_bytes(pool)} = {budget.pages} pages = {budget.tokens} tokens;"
        f" what would fit: {fits}a KV memory of {format_bytes((need + 1) * budget.page_bytes)}"
    )


def _refuse_sealed_pool(budget: Budget, request: BudgetRequest, pool: int) -> NoReturn:
    kv_cache = request.precision.kv_cache
    sealed, opened = budget.sealing.settled(request.max_model_len), budget.sealing.opened(request.max_model_len)
    open_bytes, sealed_bytes = (
        (budget.sealing.open_pages + 1) * budget.open_page_bytes,
        (sealed + 1) * budget.page_bytes,
    )
    raise BudgetError(
        f"one session of max_model_len {request.max_model_len} needs {sealed} sealed pages ({kv_cache}) and {opened} open ones"
        f" ({OPEN_FORMAT}) + a null page of each = {format_bytes(sealed_bytes + open_bytes)} of KV; there are {format_bytes(pool)};"
        f" what would fit: a KV memory of {format_bytes(sealed_bytes + open_bytes)}"
    )
