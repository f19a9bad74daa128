"""`ReferenceOps`: the contract of `kvroll_kernels.ops` in torch."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import torch

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.precision.sealing import sealed_pages
from kvroll_kernels.arrays import UINT8, Array, zeros
from kvroll_kernels.bounds import check_array
from kvroll_kernels.calls import AttentionCall, KvWriteCall, RopeCall
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.reference.bounds import check_heads, check_ids, check_rows
from kvroll_kernels.reference.kv_vectors import fetch, store
from kvroll_kernels.reference.sealed_pages import fetch_page, store_page, unseal
from kvroll_kernels.reference.tensors import tensor_of
from kvroll_kernels.reference.weights import dequantise
from kvroll_kernels.weight_form import WeightForm
from kvroll_kernels.weight_layout import check_rows_of, weight_form


@dataclass(frozen=True)
class ReferenceLinear:
    """A weight [out, in] and its bias in fp64, dequantised once."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    form: WeightForm


@dataclass(frozen=True)
class ReferencePool:
    """Page storage uint8 [num_pages, page_bytes] and its layout; for a sealed format, those of its open pages too."""

    storage: Array
    layout: PageLayout
    open: "ReferencePool | None" = None
    residual_tokens: int = 0


class ReferenceOps:
    """Row by row: a row's shapes, and so the order of its sums, never depend on its neighbours."""

    name = "reference"

    def __init__(self) -> None:
        # On vectors this small torch's OpenMP workers only spin, and with them a sum's order could depend on their number.
        torch.set_num_threads(1)

    @property
    def isa(self) -> str:
        """Whatever torch chose for this CPU."""
        return f"torch {torch.backends.cpu.get_cpu_capability()}"

    @property
    def seconds(self) -> float:
        """Not counted: nobody judges the speed of an oracle."""
        return 0.0

    def build_hash(self) -> str:
        """Hash of these sources and of torch's version."""
        digest = hashlib.sha256(torch.__version__.encode())
        for path in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(path.read_bytes())
        return f"reference-{digest.hexdigest()[:16]}"

    def buffer(self, array: Array) -> torch.Tensor:
        """See `Ops.buffer`."""
        check_array(array)
        return tensor_of(array)

    def linear(
        self,
        weight: Array,
        scale: Array | None = None,
        bias: Array | None = None,
        zero: Array | None = None,
    ) -> ReferenceLinear:
        """See `Ops.linear`."""
        outputs, inputs = weight.shape
        handle = self.empty_linear(weight_form(weight, scale, zero), outputs, inputs, bias)
        self.fill_linear(handle, 0, weight, scale, zero)
        return handle

    def empty_linear(self, form: WeightForm, outputs: int, inputs: int, bias: Array | None = None) -> ReferenceLinear:
        """See `Ops.empty_linear`."""
        dense = torch.zeros(outputs, inputs, dtype=torch.float64)
        return ReferenceLinear(dense, None if bias is None else tensor_of(bias).to(torch.float64), form)

    def fill_linear(
        self,
        handle: ReferenceLinear,
        first_row: int,
        weight: Array,
        scale: Array | None = None,
        zero: Array | None = None,
    ) -> None:
        """See `Ops.fill_linear`."""
        outputs, inputs = handle.weight.shape
        check_rows_of(handle.form, inputs, weight, scale, zero)
        end = first_row + len(weight)
        if not 0 <= first_row <= end <= outputs:
            raise ValueError(f"rows {first_row} to {end} are not in a weight of {outputs} rows")
        handle.weight[first_row:end] = dequantise(weight, scale, zero)

    def gemm(self, weight: ReferenceLinear, x: torch.Tensor, out: torch.Tensor, rows: int) -> None:
        """See `Ops.gemm`."""
        outputs, inputs = weight.weight.shape
        sources, results = check_rows(x, rows, inputs), check_rows(out, rows, outputs)
        for row in range(rows):
            y = torch.mv(weight.weight, sources[row].to(torch.float64))
            results[row] = y if weight.bias is None else y + weight.bias

    def embed(self, table: ReferenceLinear, token_ids: torch.Tensor, out: torch.Tensor, rows: int) -> None:
        """See `Ops.embed`."""
        vocab, width = table.weight.shape
        results = check_rows(out, rows, width)
        for row, token in enumerate(check_ids(token_ids, rows, vocab, "token id")):
            results[row] = table.weight[token]

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, rows: int, eps: float) -> None:
        """See `Ops.rms_norm`."""
        n = weight.numel()
        sources, results = check_rows(x, rows, n), check_rows(out, rows, n)
        for row in range(rows):
            value = sources[row].to(torch.float64)
            results[row] = value * torch.rsqrt(value.square().mean() + eps) * weight.to(torch.float64)

    def head_norm(
        self, x: torch.Tensor, weight: torch.Tensor, rows: int, heads: int, row_stride: int, offset: int, eps: float
    ) -> None:
        """See `Ops.head_norm`."""
        n = weight.numel()
        check_heads(heads, n, row_stride, offset)
        flat = check_rows(x, rows, row_stride)
        for row in range(rows):
            part = flat[row, offset : offset + heads * n].view(heads, n)
            self.rms_norm(part, weight, part, heads, eps)

    def add(self, x: torch.Tensor, y: torch.Tensor, rows: int) -> None:
        """See `Ops.add`."""
        n = x.shape[-1]
        check_rows(x, rows, n).add_(check_rows(y, rows, n))

    def silu_mul(self, gate_up: torch.Tensor, out: torch.Tensor, rows: int) -> None:
        """See `Ops.silu_mul`."""
        n = gate_up.shape[-1] // 2
        sources, results = check_rows(gate_up, rows, 2 * n), check_rows(out, rows, n)
        for row in range(rows):
            wide = sources[row].to(torch.float64)
            results[row] = wide[:n] * torch.sigmoid(wide[:n]) * wide[n:]

    def rope(self, call: RopeCall, rows: int) -> None:
        """See `Ops.rope`; HF's rotate-half: (a, b) -> (a cos - b sin, b cos + a sin) over the two halves."""
        half = call.head_dim // 2
        flat = check_rows(call.x, rows, call.row_stride)
        max_len = call.cos.numel() // half
        end = call.offset + call.heads * call.head_dim
        for row, position in enumerate(check_ids(call.positions, rows, max_len, "position")):
            head = flat[row, call.offset : end].view(call.heads, 2, half)
            a, b = head.to(torch.float64).unbind(dim=1)
            c, s = (
                call.cos.view(-1, half)[position].to(torch.float64),
                call.sin.view(-1, half)[position].to(torch.float64),
            )
            head[:, 0], head[:, 1] = a * c - b * s, b * c + a * s

    def kv_pool(
        self,
        storage: Array,
        kv_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
        open_storage: Array | None = None,
        residual_tokens: int = 0,
    ) -> ReferencePool:
        """See `Ops.kv_pool`."""
        layout = PageLayout(kv_format, layers, kv_heads, head_dim)
        layout.check_storage(storage)
        open_layout = layout.open_layout(open_storage, residual_tokens)
        if open_storage is None or open_layout is None:
            return ReferencePool(storage, layout)
        return ReferencePool(storage, layout, ReferencePool(open_storage, open_layout), residual_tokens)

    def kv_write(self, call: KvWriteCall, rows: int) -> None:
        """See `Ops.kv_write`."""
        bound: ReferencePool = call.pool
        pool = bound.open or bound
        layout = pool.layout
        width = layout.kv_heads * layout.head_dim
        flat = check_rows(call.qkv, rows, call.row_stride)
        pages = check_ids(call.page_ids, rows, pool.storage.shape[0], "page id")
        for row, (page_id, slot) in enumerate(
            zip(pages, check_ids(call.slots, rows, PAGE_TOKENS, "slot"), strict=True)
        ):
            for which, start in enumerate((call.k_offset, call.v_offset)):
                values = flat[row, start : start + width].view(layout.kv_heads, layout.head_dim)
                store(layout, pool.storage[page_id], (call.layer, which, slice(None), slot), values)

    def kivi_seal(self, pool: ReferencePool, open_page_ids: torch.Tensor, page_ids: torch.Tensor, count: int) -> None:
        """See `Ops.kivi_seal`."""
        if pool.open is None:
            raise ValueError(f"{pool.layout.kv_format} pages are not sealed; kivi_seal takes kivi4 or kivi2")
        sources = check_ids(open_page_ids, count, pool.open.storage.shape[0], "open page id")
        for source, target in zip(sources, check_ids(page_ids, count, pool.storage.shape[0], "page id"), strict=True):
            store_page(pool.layout, pool.storage[target], fetch_page(pool.open.layout, pool.open.storage[source]))

    def paged_attention(self, call: AttentionCall, rows: int) -> None:
        """See `Ops.paged_attention`; fp64 makes the 256-token splits unnecessary, not wrong."""
        pool: ReferencePool = call.pool
        layer, heads, max_pages, window = call.layer, call.heads, call.max_pages, call.window
        page_table, open_table = call.page_table, call.open_table
        if (open_table is None) != (pool.open is None):
            raise ValueError("an open table belongs to the sealed formats, and to every call of theirs")
        layout = pool.layout
        dim, group = layout.head_dim, heads // layout.kv_heads
        queries, results = check_rows(call.q, rows, call.q_row_stride), check_rows(call.out, rows, heads * dim)
        sequences = check_ids(call.row_sequence, rows, page_table.numel() // max_pages, "sequence")
        sink = None if call.sinks is None else check_rows(call.sinks, 1, heads)[0].to(torch.float64).view(-1, group, 1)
        lengths = check_ids(call.row_length, rows, max_pages * PAGE_TOKENS + 1, "row length", low=1)
        for row, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
            begin = max(0, length - window) if window > 0 else 0
            first, last = sequence * max_pages + begin // PAGE_TOKENS, sequence * max_pages + -(-length // PAGE_TOKENS)
            border = last
            if open_table is not None:
                border = min(max(first, sequence * max_pages + sealed_pages(length - 1, pool.residual_tokens)), last)
            parts = _fetch_pages(pool, layer, page_table.view(-1)[first:border])
            if open_table is not None and pool.open is not None:
                parts += _fetch_pages(pool.open, layer, open_table.view(-1)[border:last])
            kv = torch.cat(parts, dim=2).to(torch.float64)
            skip = begin // PAGE_TOKENS * PAGE_TOKENS
            k, v = kv[:, :, begin - skip : length - skip]
            query = queries[row, : heads * dim].to(torch.float64).view(layout.kv_heads, group, dim)
            scores = torch.einsum("hgd,htd->hgt", query, k) * call.scale
            numbers = scores.to(torch.float32).isfinite().all(dim=-1, keepdim=True)
            scores = torch.where(numbers, scores, torch.full_like(scores, math.nan))
            if sink is not None:
                scores = torch.cat([scores, sink], dim=-1)
            weights = torch.softmax(scores, dim=-1)[..., : length - begin]
            results[row] = torch.einsum("hgt,htd->hgd", weights, v).reshape(-1)

    def transcode(
        self,
        source: Array,
        source_format: str,
        target_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
    ) -> Array:
        """See `Ops.transcode`."""
        origin = PageLayout(source_format, layers, kv_heads, head_dim)
        target = PageLayout(target_format, layers, kv_heads, head_dim)
        if source.dtype != UINT8 or source.size != origin.page_bytes:
            raise ValueError(f"a {source_format} page is {origin.page_bytes} bytes, found {source.size}")
        if source_format == target_format:
            return source.copy()
        page = zeros((target.page_bytes,), UINT8)
        store_page(target, page, fetch_page(origin, source))
        return page

    def set_threads(self, num_threads: int) -> None:
        """See `Ops.set_threads`: it stays at one thread."""
        if num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, found {num_threads}")


def _fetch_pages(pool: ReferencePool, layer: int, table: torch.Tensor) -> list[torch.Tensor]:
    """K and V [2, kv_heads, 32, d] of one layer of each of those pages."""
    pages = [pool.storage[page] for page in check_ids(table, table.numel(), pool.storage.shape[0], "page id")]
    if pool.layout.is_sealed:
        return [unseal(pool.layout, page, slice(layer, layer + 1))[0] for page in pages]
    return [fetch(pool.layout, page, (layer,)) for page in pages]
