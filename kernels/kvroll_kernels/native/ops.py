"""`NativeOps`: the contract of `kvroll_kernels.ops` over the C++ module."""

import numpy as np

from kvroll_kernels import _native
from kvroll_kernels.arrays import FP32, UINT8, Array, zeros
from kvroll_kernels.bounds import check_array
from kvroll_kernels.calls import AttentionCall, KvWriteCall, RopeCall
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.weight_form import WeightForm
from kvroll_kernels.weight_layout import check_rows_of, weight_form


class NativeOps:
    """Handles in, kernels out; the GIL is free while a kernel runs.

    One instance is one thread pool and one attention scratch: call it from one thread at a time (`transcode` excepted).
    """

    name = "native"

    def __init__(self, *, threads: int = 1, isa: str = "") -> None:
        """`isa`: `avx2` or `plain`; the empty word takes the best that this CPU has.

        Raises:
            ValueError: the CPU does not have that instruction set.
        """
        self._kernels = _native.Kernels(isa, threads)

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return self._kernels.isa

    @property
    def seconds(self) -> float:
        """See `Ops.seconds`."""
        return self._kernels.seconds

    def build_hash(self) -> str:
        """Hash of the C++ sources, compiler and flags, with the instruction set: the same on every CPU that has it."""
        return f"native-{self.isa}-{_native.BUILD_HASH}"

    def buffer(self, array: Array) -> _native.Buffer:
        """See `Ops.buffer`."""
        check_array(array)
        last_dim = array.shape[-1] if array.ndim else 1
        handle = _native.Buffer(array.ctypes.data, array.size, last_dim, array.dtype.name)
        handle.array = array
        return handle

    def linear(
        self,
        weight: Array,
        scale: Array | None = None,
        bias: Array | None = None,
        zero: Array | None = None,
    ) -> _native.Linear:
        """See `Ops.linear`."""
        outputs, inputs = weight.shape
        handle = self.empty_linear(weight_form(weight, scale, zero), outputs, inputs, bias)
        self.fill_linear(handle, 0, weight, scale, zero)
        return handle

    def empty_linear(self, form: WeightForm, outputs: int, inputs: int, bias: Array | None = None) -> _native.Linear:
        """See `Ops.empty_linear`."""
        channels = _channels(bias, outputs)
        handle = self._kernels.linear(
            form.kind, outputs, inputs, form.block, 0 if channels is None else channels.ctypes.data
        )
        handle.form = form
        return handle

    def fill_linear(
        self,
        handle: _native.Linear,
        first_row: int,
        weight: Array,
        scale: Array | None = None,
        zero: Array | None = None,
    ) -> None:
        """See `Ops.fill_linear`."""
        check_rows_of(handle.form, handle.inputs, weight, scale, zero)
        scales = _channels(scale, len(weight)) if handle.form.block == 0 else scale
        parts = [None if part is None else np.ascontiguousarray(part) for part in (weight, scales, zero)]
        addresses = [0 if part is None else part.ctypes.data for part in parts]
        self._kernels.fill(handle, first_row, len(weight), *addresses)

    def gemm(self, weight: _native.Linear, x: _native.Buffer, out: _native.Buffer, rows: int) -> None:
        """See `Ops.gemm`."""
        self._kernels.gemm(weight, x, out, rows)

    def embed(self, table: _native.Linear, token_ids: _native.Buffer, out: _native.Buffer, rows: int) -> None:
        """See `Ops.embed`."""
        self._kernels.embed(table, token_ids, out, rows)

    def rms_norm(self, x: _native.Buffer, weight: _native.Buffer, out: _native.Buffer, rows: int, eps: float) -> None:
        """See `Ops.rms_norm`."""
        self._kernels.rms_norm(x, weight, out, rows, eps)

    def head_norm(
        self, x: _native.Buffer, weight: _native.Buffer, rows: int, heads: int, row_stride: int, offset: int, eps: float
    ) -> None:
        """See `Ops.head_norm`."""
        self._kernels.head_norm(x, weight, rows, heads, row_stride, offset, eps)

    def add(self, x: _native.Buffer, y: _native.Buffer, rows: int) -> None:
        """See `Ops.add`."""
        self._kernels.add(x, y, rows)

    def silu_mul(self, gate_up: _native.Buffer, out: _native.Buffer, rows: int) -> None:
        """See `Ops.silu_mul`."""
        self._kernels.silu_mul(gate_up, out, rows)

    def rope(self, call: RopeCall, rows: int) -> None:
        """See `Ops.rope`."""
        rotation = (call.positions, call.cos, call.sin)
        self._kernels.rope(call.x, *rotation, rows, call.heads, call.head_dim, call.row_stride, call.offset)

    def kv_pool(
        self,
        storage: Array,
        kv_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
        open_storage: Array | None = None,
        residual_tokens: int = 0,
    ) -> _native.KvPool:
        """See `Ops.kv_pool`; also asks the system for huge pages under the storage."""
        layout = PageLayout(kv_format, layers, kv_heads, head_dim)
        layout.check_storage(storage)
        layout.open_layout(open_storage, residual_tokens)
        sizes, beside = (layers, kv_heads, head_dim), _place(open_storage)
        pool = _native.KvPool(*_place(storage), kv_format, *sizes, *beside, residual_tokens)
        for pages in (storage, open_storage):
            if pages is not None:
                _native.advise_huge_pages(pages.ctypes.data, pages.size)
        pool.storage, pool.open_storage = storage, open_storage
        return pool

    def kv_write(self, call: KvWriteCall, rows: int) -> None:
        """See `Ops.kv_write`."""
        at = (call.row_stride, call.k_offset, call.v_offset)
        self._kernels.kv_write(call.pool, call.layer, call.qkv, rows, *at, call.page_ids, call.slots)

    def kivi_seal(
        self, pool: _native.KvPool, open_page_ids: _native.Buffer, page_ids: _native.Buffer, count: int
    ) -> None:
        """See `Ops.kivi_seal`."""
        self._kernels.kivi_seal(pool, open_page_ids, page_ids, count)

    def paged_attention(self, call: AttentionCall, rows: int) -> None:
        """See `Ops.paged_attention`."""
        self._kernels.paged_attention(
            call.pool,
            call.layer,
            call.q,
            call.q_row_stride,
            call.out,
            rows,
            call.heads,
            call.page_table,
            call.max_pages,
            call.row_sequence,
            call.row_length,
            call.scale,
            call.window,
            call.sinks,
            call.open_table,
        )

    def transcode(
        self,
        source: Array,
        source_format: str,
        target_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
    ) -> Array:
        """See `Ops.transcode`; runs on the calling thread, beside the engine's steps."""
        origin = PageLayout(source_format, layers, kv_heads, head_dim)
        target = PageLayout(target_format, layers, kv_heads, head_dim)
        if source.dtype != UINT8 or source.size != origin.page_bytes:
            raise ValueError(f"a {source_format} page is {origin.page_bytes} bytes, found {source.size}")
        if source_format == target_format:
            return source.copy()
        dense, page = np.ascontiguousarray(source), zeros((target.page_bytes,), UINT8)
        addresses = (dense.ctypes.data, source_format, page.ctypes.data, target_format)
        self._kernels.transcode(*addresses, layers, kv_heads, head_dim)
        return page

    def set_threads(self, num_threads: int) -> None:
        """See `Ops.set_threads`."""
        self._kernels.set_threads(num_threads)


def _place(pages: Array | None) -> tuple[int, int, int]:
    """Address, number and stride of page storage."""
    return (0, 0, 0) if pages is None else (pages.ctypes.data, pages.shape[0], pages.shape[1])


def _channels(values: Array | None, outputs: int) -> Array | None:
    """One fp32 a channel, contiguous."""
    if values is None:
        return None
    if values.size != outputs:
        raise ValueError(f"scale and bias need one value for each of {outputs} outputs, found {values.size}")
    return np.ascontiguousarray(values, dtype=FP32).reshape(-1)
