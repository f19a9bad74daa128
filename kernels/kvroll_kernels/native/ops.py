"""`NativeOps`: the contract of `kvroll_kernels.ops` over the C++ module."""

import numpy as np

from kvroll_kernels import _native
from kvroll_kernels.arrays import FP32, UINT8, Array, zeros
from kvroll_kernels.bounds import check_array
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.weight_layout import weight_kind


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
        kind = weight_kind(weight, scale, zero)
        outputs, inputs = weight.shape
        dense = np.ascontiguousarray(weight)
        by_block = kind in ("int4", "mxfp4")
        scales = np.ascontiguousarray(scale) if by_block and scale is not None else _channels(scale, outputs)
        parts = [scales, None if zero is None else np.ascontiguousarray(zero), _channels(bias, outputs)]
        addresses = [0 if values is None else values.ctypes.data for values in parts]
        return self._kernels.linear(dense.ctypes.data, kind, outputs, inputs, *addresses)

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

    def rope(
        self,
        x: _native.Buffer,
        positions: _native.Buffer,
        cos: _native.Buffer,
        sin: _native.Buffer,
        rows: int,
        heads: int,
        head_dim: int,
        row_stride: int,
        offset: int,
    ) -> None:
        """See `Ops.rope`."""
        self._kernels.rope(x, positions, cos, sin, rows, heads, head_dim, row_stride, offset)

    def kv_pool(self, storage: Array, kv_format: str, layers: int, kv_heads: int, head_dim: int) -> _native.KvPool:
        """See `Ops.kv_pool`; also asks the system for huge pages under the storage."""
        PageLayout(kv_format, layers, kv_heads, head_dim).check_storage(storage)
        num_pages, stride = storage.shape
        pool = _native.KvPool(storage.ctypes.data, num_pages, stride, kv_format, layers, kv_heads, head_dim)
        _native.advise_huge_pages(storage.ctypes.data, storage.size)
        pool.storage = storage
        return pool

    def kv_write(
        self,
        pool: _native.KvPool,
        layer: int,
        qkv: _native.Buffer,
        rows: int,
        row_stride: int,
        k_offset: int,
        v_offset: int,
        page_ids: _native.Buffer,
        slots: _native.Buffer,
    ) -> None:
        """See `Ops.kv_write`."""
        self._kernels.kv_write(pool, layer, qkv, rows, row_stride, k_offset, v_offset, page_ids, slots)

    def paged_attention(
        self,
        pool: _native.KvPool,
        layer: int,
        q: _native.Buffer,
        q_row_stride: int,
        out: _native.Buffer,
        rows: int,
        heads: int,
        page_table: _native.Buffer,
        max_pages: int,
        row_sequence: _native.Buffer,
        row_length: _native.Buffer,
        scale: float,
        window: int,
        sinks: _native.Buffer | None = None,
    ) -> None:
        """See `Ops.paged_attention`."""
        self._kernels.paged_attention(
            pool,
            layer,
            q,
            q_row_stride,
            out,
            rows,
            heads,
            page_table,
            max_pages,
            row_sequence,
            row_length,
            scale,
            window,
            sinks,
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


def _channels(values: Array | None, outputs: int) -> Array | None:
    """One fp32 a channel, contiguous."""
    if values is None:
        return None
    if values.size != outputs:
        raise ValueError(f"scale and bias need one value for each of {outputs} outputs, found {values.size}")
    return np.ascontiguousarray(values, dtype=FP32).reshape(-1)
