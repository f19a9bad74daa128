"""Attention whose sums are kept in few bits: what tensor cores do to long contexts, at the size of a test.

Hopper's FP8 tensor cores keep about 14 bits of a sum and cut the rest off, so that the error of P·V grows with the context: a needle
test at 128k tokens fell from 91 to 13 points, and to 89 with the sums in fp32 (vllm-project/flash-attention#104). A context of a
thousand tokens, 128 times shorter, shows the same with seven bits fewer.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_kernels.arrays import Array
from kvroll_kernels.calls import AttentionCall
from kvroll_kernels.native.ops import NativeOps
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.reference.kv_vectors import fetch
from kvroll_kernels.reference.ops import ReferenceOps, ReferencePool
from kvroll_kernels.reference.tensors import array_of

Floats = npt.NDArray[np.float32]
FULL_BITS = 24


def cut(values: Floats, bits: int) -> Floats:
    """fp32 values with the significand cut off after `bits` bits (the leading one counts), towards zero."""
    mask = np.int32(-1) << np.int32(FULL_BITS - bits)
    kept: Floats = (values.view(np.int32) & mask).view(np.float32)
    return kept


def narrow_attention(queries: Floats, k: Floats, v: Floats, lengths: npt.NDArray[np.int32], bits: int) -> Floats:
    """Attention [rows, heads, d] of scaled queries over k and v [kv_heads, tokens, d], row r over its first lengths[r] tokens.

    The sums of P·V and of the softmax's denominator are cut to `bits` after every token; scores and weights are exact to fp32.
    """
    rows, heads, dim = queries.shape
    grouped = queries.reshape(rows, len(k), heads // len(k), dim)
    scores = np.einsum("rhgd,htd->trhg", grouped, k)
    seen = np.arange(len(scores))[:, None] < lengths
    scores = np.where(seen[:, :, None, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=0)).astype(np.float32)
    total = np.zeros_like(weights[0])
    summed = np.zeros_like(grouped)
    for token, weight in enumerate(weights):
        total = cut(total + weight, bits)
        summed = cut(summed + weight[..., None] * v[:, token][None, :, None], bits)
    attended: Floats = (summed / total[..., None]).reshape(rows, heads, dim)
    return attended


def attention_over_pages(
    layout: PageLayout,
    storage: Array,
    layer: int,
    rows_at: tuple[Array, int, int, int],
    table: Array,
    sequences: Array,
    lengths: Array,
    scale: float,
    bits: int,
) -> Floats:
    """`narrow_attention` over the pages of each row's sequence; rows_at is (q buffer, stride, rows, heads)."""
    flat, stride, rows, heads = rows_at
    queries = flat.reshape(-1)[: rows * stride].reshape(rows, stride)[:, : heads * layout.head_dim]
    queries = queries.reshape(rows, heads, layout.head_dim) * np.float32(scale)
    out = np.empty_like(queries)
    for sequence in np.unique(sequences[:rows]):
        mine = np.flatnonzero(sequences[:rows] == sequence)
        longest = int(lengths[mine].max())
        pages = table[sequence][: -(-longest // PAGE_TOKENS)]
        parts = [array_of(fetch(layout, storage[page], (layer,)).contiguous()) for page in pages]
        kv = np.concatenate(parts, axis=2)[:, :, :longest]
        out[mine] = narrow_attention(queries[mine], kv[0], kv[1], lengths[mine], bits)
    return out.reshape(rows, heads * layout.head_dim)


class NarrowReference(ReferenceOps):
    """The reference with sums of `bits` bits in attention; 24 is fp32."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self._bits = bits

    def paged_attention(self, call: AttentionCall, rows: int) -> None:
        assert (call.window, call.sinks, call.open_table) == (0, None, None)
        pool: ReferencePool = call.pool
        table = array_of(call.page_table).reshape(-1, call.max_pages)
        at = (array_of(call.q), call.q_row_stride, rows, call.heads)
        asked = (array_of(call.row_sequence), array_of(call.row_length), call.scale, self._bits)
        found = attention_over_pages(pool.layout, pool.storage, call.layer, at, table, *asked)
        array_of(call.out).reshape(-1)[: found.size] = found.reshape(-1)


class NarrowNative(NativeOps):
    """The native kernels with the reference's narrow attention: fast enough for a real model."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self._bits = bits
        self._layouts: dict[int, PageLayout] = {}

    def kv_pool(
        self,
        storage: Array,
        kv_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
        open_storage: Array | None = None,
        residual_tokens: int = 0,
    ) -> Any:
        assert open_storage is None
        pool = super().kv_pool(storage, kv_format, layers, kv_heads, head_dim)
        self._layouts[id(pool.storage)] = PageLayout(kv_format, layers, kv_heads, head_dim)
        return pool

    def paged_attention(self, call: AttentionCall, rows: int) -> None:
        assert (call.window, call.sinks, call.open_table) == (0, None, None)
        pool: Any = call.pool
        table = call.page_table.array.reshape(-1, call.max_pages)
        at = (call.q.array, call.q_row_stride, rows, call.heads)
        layout = self._layouts[id(pool.storage)]
        asked = (call.row_sequence.array, call.row_length.array, call.scale, self._bits)
        found = attention_over_pages(layout, pool.storage, call.layer, at, table, *asked)
        call.out.array.reshape(-1)[: found.size] = found.reshape(-1)
