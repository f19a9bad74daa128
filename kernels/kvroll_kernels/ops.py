"""The contract that every implementation of the kernels fulfils.

Arrays are bound once (`buffer`, `linear`, `kv_pool`) and then passed as handles: a call with torch tensors costs
19 us, one with handles 0.2 us (kernels prototype). Activations are fp32 and so is every accumulation.

The law of determinism: a row's result depends only on that row's own inputs. No implementation may let the number of
rows, the number of threads, the physical page ids or the order of rows change the order of a sum: K of a GEMM is summed
in one fixed order, attention is split every `ATTENTION_SPLIT_TOKENS` tokens from token 0 and the splits are reduced in
order. So batch 1 = batch N = chunked = replayed.

Row buffers are dense: row r of width n begins at element r * n, whatever the shape of the bound array. A call checks
sizes, token ids, slots and page ids before it writes anything and raises ValueError (native and reference alike), so a
wrong index never reads or writes outside a buffer.
"""

from typing import Any, Protocol

from kvroll_kernels.arrays import Array
from kvroll_kernels.calls import AttentionCall, KvWriteCall, RopeCall
from kvroll_kernels.weight_form import WeightForm

ATTENTION_SPLIT_TOKENS = 256
HEAD_DIM_MULTIPLE = 16
"""Every implementation takes head dims that are a multiple of this; others are refused by `kv_pool`."""
MAX_HEAD_DIM = 256
"""The widest head that the native attention has room for on its stack."""

Buffer = Any
"""A handle on a contiguous array that the caller keeps alive; rebinding is needed only when the storage moves."""
LinearHandle = Any
PoolHandle = Any


class Ops(Protocol):
    """One implementation. Shapes in brackets; `rows` is how many leading rows of the buffers are in use."""

    @property
    def name(self) -> str:
        """The word that `dispatch.load` knows it by."""
        ...

    @property
    def isa(self) -> str:
        """The instruction set of its path: two CPUs that take the same one give the same bits, whatever else they have."""
        ...

    @property
    def seconds(self) -> float:
        """Seconds inside kernels since the beginning; what a step takes besides is its host's. 0 where they are not counted."""
        ...

    def build_hash(self) -> str:
        """Identifies the numerics of this implementation: equal hashes on equal devices give equal bits."""
        ...

    def buffer(self, array: Array) -> Buffer:
        """Binds a contiguous array (fp32, bf16, int32, int64 or uint8)."""
        ...

    def linear(
        self,
        weight: Array,
        scale: Array | None = None,
        bias: Array | None = None,
        zero: Array | None = None,
    ) -> LinearHandle:
        """Packs a weight [out, in] in any of the forms of `weight_layout.weight_form`. The handle owns its packed copy."""
        ...

    def empty_linear(self, form: WeightForm, outputs: int, inputs: int, bias: Array | None = None) -> LinearHandle:
        """A weight of zeros, whose rows `fill_linear` brings some at a time: so it is never there both stored and packed."""
        ...

    def fill_linear(
        self,
        handle: LinearHandle,
        first_row: int,
        weight: Array,
        scale: Array | None = None,
        zero: Array | None = None,
    ) -> None:
        """Packs rows [rows, in] of the handle's form into it, from `first_row` on; not while a kernel reads it.

        Raises:
            ValueError: rows of another form, or more than there are.
        """
        ...

    def gemm(self, weight: LinearHandle, x: Buffer, out: Buffer, rows: int) -> None:
        """out[rows, out] = x[rows, in] @ weight.T (+ bias), fp32."""
        ...

    def embed(self, table: LinearHandle, token_ids: Buffer, out: Buffer, rows: int) -> None:
        """out[r] = row token_ids[r] (int32) of a weight bound by `linear`: tied head and embedding share one copy."""
        ...

    def rms_norm(self, x: Buffer, weight: Buffer, out: Buffer, rows: int, eps: float) -> None:
        """out[rows, n] = x / sqrt(mean(x^2) + eps) * weight[n], fp32; out may be x. NaN where the squares are out of fp32's range."""
        ...

    def head_norm(
        self, x: Buffer, weight: Buffer, rows: int, heads: int, row_stride: int, offset: int, eps: float
    ) -> None:
        """`rms_norm` in place of each of the `heads` heads x[r, offset + h*n : offset + (h + 1)*n], n the size of weight."""
        ...

    def add(self, x: Buffer, y: Buffer, rows: int) -> None:
        """x[rows, n] += y[rows, n], where n is the last dimension of the array that x was bound to."""
        ...

    def silu_mul(self, gate_up: Buffer, out: Buffer, rows: int) -> None:
        """out[rows, n] = silu(gate_up[:, :n]) * gate_up[:, n:]; n is half of the last dimension of gate_up's array."""
        ...

    def rope(self, call: RopeCall, rows: int) -> None:
        """Rotates the call's heads in place, rotate-half convention."""
        ...

    def kv_pool(
        self,
        storage: Array,
        kv_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
        open_storage: Array | None = None,
        residual_tokens: int = 0,
    ) -> PoolHandle:
        """Binds page storage uint8 [num_pages, page_bytes].

        Page layout `[layer][K|V][kv_head][token][payload]`, then the scales (see `PageLayout`). The sealed formats (kivi4, kivi2) have
        two kinds of pages: `open_storage` [num_open_pages, page_bytes] holds the bf16 ones, and a row reads a page sealed or open by
        `kvroll_core.precision.sealing.sealed_pages(row_length - 1, residual_tokens)`.

        Raises:
            ValueError: the storage is smaller than the format's pages, head_dim is not a multiple of 16, or open pages are missing.
            kvroll_core.precision.formats.FormatNotBuiltError: the format has no kernels yet.
        """
        ...

    def kv_write(self, call: KvWriteCall, rows: int) -> None:
        """Stores K and V of each row into its page at its slot; of a sealed format, an open page.

        All round half to even. A finite value out of range is infinity in bf16; fp16 saturates. int8 and fp8_e4m3: scale =
        max(absmax, 1e-6) / 127 or / 448, payload = value / scale. mxfp8: the same by blocks of 32, whose scale is the
        smallest power of two that clips nothing. The stored bytes are the same in every implementation.

        NaN and infinity are never stored as numbers: fp32, bf16 and fp16 keep them (bf16 and fp16 with the quiet NaN); in the others the
        scale of their vector or block is NaN (in E8M0 the code 255) and its payload zeros.
        """
        ...

    def kivi_seal(self, pool: PoolHandle, open_page_ids: Buffer, page_ids: Buffer, count: int) -> None:
        """Seals open page open_page_ids[i] (int64) into page page_ids[i] (int64), all 32 tokens of all layers; the open one stays.

        K per channel over the page, V per token in groups of 32 channels: scale = (max - min) / (2^bits - 1) and zero = min, both
        rounded to fp16; code = round-half-even((value - zero) / scale). The stored bytes are the same in every implementation.
        A channel or group with NaN or infinity in it has NaN for both and codes of 0.
        """
        ...

    def paged_attention(self, call: AttentionCall, rows: int) -> None:
        """Causal attention of each row over the first row_length[r] tokens of sequence row_sequence[r], its own included.

        A sink is one more score a head, which takes its share of the softmax and has no value (arXiv:2309.17453, learned as in
        GPT-OSS); no window cuts it off. The open table holds the open page of each page that some row reads open; the page table is then
        looked up for the sealed ones only.
        Prefill rows and decode rows are the same thing, which is what makes chunking invisible. A head whose query, or the K or V of a
        token that it attends to, is NaN or infinite comes out as NaN or infinity; what lies outside its tokens cannot.
        """
        ...

    def transcode(
        self,
        source: Array,
        source_format: str,
        target_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
    ) -> Array:
        """One page's bytes (uint8) in the target format, all 32 tokens: unwritten slots come out as whatever they hold.

        Gives the bytes that `kv_write` would have stored for the values that the source page holds, or `kivi_seal` for them in bf16.
        """
        ...

    def set_threads(self, num_threads: int) -> None:
        """Sizes the pool; results do not depend on it."""
        ...
