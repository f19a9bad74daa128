"""How fast this device is with the worker's own kernels: memory, arithmetic, and the stored bytes a second of each built dtype.

Normally distributed numbers, as a model has them: zeros, and far more so subnormals, are multiplied at other speeds. What is timed is much
smaller than a model and comes from memory all the same: before each run a matrix larger than the cache is read. Never byte ratios, never
a data sheet: both mislead.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from kvroll_core.budget import WEIGHT_BLOCK, ModelShape
from kvroll_core.precision.formats import KV_FORMATS, PAGE_TOKENS, WEIGHT_FORMATS, find_kv_format, find_weight_format
from kvroll_core.precision.sealing import OPEN_FORMAT
from kvroll_kernels.arrays import FP32, INT32, INT64, UINT8, Array, zeros
from kvroll_kernels.calls import AttentionCall
from kvroll_kernels.ops import Buffer, LinearHandle, Ops
from kvroll_kernels.page_layout import PageLayout
from kvroll_worker.engine.machine import cache_bytes
from kvroll_worker.quant.weights import quantised_rows, stored_form

MIB = 1 << 20
TIMED_BYTES = 8 * MIB
SLICE_BYTES = 4 * MIB
RUNS, PEAK_RUNS = 3, 40
"""The fastest counts: neighbours only ever slow a run down, and each run is shorter than their turn on the CPU."""
PEAK_ROWS, PEAK_OUTPUTS, PEAK_INPUTS = 48, 256, 512  # half a MiB of fp32: cached; whole passes of the kernels' six rows
_DRAWS = 1 << 16


@dataclass(frozen=True)
class Piece:
    """One thing to measure, some tens of milliseconds: `kind` is device, weights or kv; `measure` gives the figure a second."""

    kind: str
    name: str
    measure: Callable[[], float]


class Calibration:
    """The pieces for a device, the threads of `ops` and a model's shape. Holds `stream_bytes`, more than the cache, until `release`."""

    def __init__(self, ops: Ops, shape: ModelShape, *, stream_bytes: int | None = None) -> None:
        self._ops, self._shape = ops, shape
        self._stream_bytes = stream_bytes or 2 * cache_bytes()

    @property
    def peak_bytes(self) -> int:
        """Memory that a piece takes beside the worker's own, at most."""
        return self._stream_bytes + 8 * TIMED_BYTES

    def device_pieces(self) -> list[Piece]:
        """What a verdict needs."""
        return [
            Piece("device", "bytes", self._device_bytes_per_second),
            Piece("device", "flops", self._device_flops_per_second),
        ]

    def format_pieces(self) -> list[Piece]:
        """What advice needs: every built dtype."""
        weights = [Piece("weights", n, partial(self.weights_bytes_per_second, n)) for n in _built(WEIGHT_FORMATS)]
        return weights + [Piece("kv", n, partial(self.kv_bytes_per_second, n)) for n in _built(KV_FORMATS)]

    def release(self) -> None:
        """Gives the memory back; the next piece takes it again."""
        self.__dict__.pop("_stream", None)

    def weights_bytes_per_second(self, name: str) -> float:
        """Stored bytes a second of a matrix of that dtype times one row, read from memory."""
        element_bytes = find_weight_format(name).element_bytes(WEIGHT_BLOCK)
        inputs = self._shape.hidden
        outputs = max(1, int(TIMED_BYTES / element_bytes / inputs))
        handle = _normal_matrix(self._ops, name, outputs, inputs)
        x, out = self._rows(1, inputs), self._rows(1, outputs)
        seconds = self._best(lambda: self._ops.gemm(handle, x, out, 1))
        return outputs * inputs * element_bytes / seconds

    def kv_bytes_per_second(self, name: str) -> float:
        """Stored bytes a second of the decode attention of one session over pages of that dtype, read from memory."""
        shape, ops = self._shape, self._ops
        layout = PageLayout(name, shape.layers, shape.kv_heads, shape.head_dim)
        pages = max(TIMED_BYTES // layout.page_bytes, 2)
        storage = zeros((pages, layout.page_bytes), UINT8)
        beside = _open_storage(layout)
        pool = ops.kv_pool(storage, name, shape.layers, shape.kv_heads, shape.head_dim, *beside)
        storage[:] = _normal_page(
            ops, layout
        )  # each page by itself: those that nobody wrote would all be one, and cached
        if beside:
            beside[0][:] = _normal_page(ops, PageLayout(OPEN_FORMAT, shape.layers, shape.kv_heads, shape.head_dim))
        tokens, queries = pages * PAGE_TOKENS, shape.heads * shape.head_dim
        q, out = self._rows(1, queries), self._rows(1, queries)
        table = ops.buffer(np.arange(pages, dtype=INT64).reshape(1, pages))
        opened = ops.buffer(np.zeros((1, pages), dtype=INT64)) if beside else None
        sequence, length = ops.buffer(np.zeros(1, INT32)), ops.buffer(np.full(1, tokens, INT32))

        scale, rows_of = shape.head_dim**-0.5, (sequence, length)
        calls = [
            AttentionCall(pool, layer, q, queries, out, shape.heads, table, pages, *rows_of, scale, open_table=opened)
            for layer in range(shape.layers)
        ]

        def decode() -> None:
            for call in calls:
                ops.paged_attention(call, 1)

        sizes = {"layers": shape.layers, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
        return tokens * find_kv_format(name).token_bytes(**sizes) / self._best(decode)

    def _device_bytes_per_second(self) -> float:
        """Matrices of fp32, together larger than the cache, times one row: one operation for two bytes, so memory is all they wait for.

        A whole pass counts, as a step reads a whole model: single slices are a tenth to a fifth faster, where others use the memory too.
        """
        passes = [self._evict() for _ in range(RUNS)]
        return SLICE_BYTES * len(passes[0]) / min(map(sum, passes))

    def _device_flops_per_second(self) -> float:
        """A matrix that the cache holds times many rows, in fp32, which every format is widened to."""
        handle = _normal_matrix(self._ops, "fp32", PEAK_OUTPUTS, PEAK_INPUTS)
        x, out = self._rows(PEAK_ROWS, PEAK_INPUTS), self._rows(PEAK_ROWS, PEAK_OUTPUTS)
        times = [_seconds(lambda: self._ops.gemm(handle, x, out, PEAK_ROWS)) for _ in range(PEAK_RUNS)]
        return 2.0 * PEAK_ROWS * PEAK_OUTPUTS * PEAK_INPUTS / min(times)

    @cached_property
    def _stream(self) -> tuple[list[LinearHandle], Buffer, Buffer]:
        inputs = 4096
        outputs = SLICE_BYTES // (4 * inputs)
        slices = max(1, self._stream_bytes // SLICE_BYTES)
        handles = [_normal_matrix(self._ops, "fp32", outputs, inputs) for _ in range(slices)]
        return handles, self._rows(1, inputs), self._rows(1, outputs)

    def _evict(self) -> list[float]:
        """Reads all of the stream; seconds of each slice."""
        handles, x, out = self._stream
        return [_seconds(partial(self._ops.gemm, handle, x, out, 1)) for handle in handles]

    def _best(self, run: Callable[[], Any]) -> float:
        run()  # the first one maps memory
        times = []
        for _ in range(RUNS):
            self._evict()
            times.append(_seconds(run))
        return min(times)

    def _rows(self, rows: int, width: int) -> Buffer:
        return self._ops.buffer(_normal(rows, width))


def _normal(*shape: int) -> Array:
    """fp32 of a normal distribution: some thousand draws over and over, for drawing them all would take longer than what is timed."""
    drawn = np.random.default_rng(0).standard_normal(_DRAWS, dtype=np.float32)
    out = zeros(shape, FP32)
    out[...] = np.resize(drawn, shape)
    return out


def _normal_matrix(ops: Ops, name: str, outputs: int, inputs: int) -> LinearHandle:
    handle = ops.empty_linear(stored_form(name), outputs, inputs)
    step = max(1, _DRAWS // inputs)
    rows = next(iter(quantised_rows([_normal(step, inputs)], name)))
    for first in range(0, outputs, step):
        count = min(step, outputs - first)
        scale, zero = (None if part is None else part[:count] for part in (rows.scale, rows.zero))
        ops.fill_linear(handle, first, rows.payload[:count], scale, zero)
    return handle


def _normal_page(ops: Ops, layout: PageLayout) -> Array:
    sizes = (layout.layers, layout.kv_heads, layout.head_dim)
    plain = PageLayout("fp32", *sizes)
    page = zeros((plain.page_bytes,), UINT8)
    payload = plain.payload(page)
    payload[...] = _normal(*payload.shape)
    return ops.transcode(page, "fp32", layout.kv_format, *sizes)


def _open_storage(layout: PageLayout) -> tuple[Array, int] | tuple[()]:
    """The open page that every page of the residual is, and the least residual: a sealed format is measured with a page or two of it."""
    if not layout.is_sealed:
        return ()
    beside = PageLayout(OPEN_FORMAT, layout.layers, layout.kv_heads, layout.head_dim)
    return zeros((1, beside.page_bytes), UINT8), PAGE_TOKENS


def _built(table: Any) -> list[str]:
    return [name for name, entry in table.items() if entry.built]


def _seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
