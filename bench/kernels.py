"""How fast the native kernels are, as a share of a stream read in the same run: `python bench/kernels.py`.

Writes build/bench/kernels.json. Absolute figures travel badly between machines; the ratios are what to compare. Shapes
are SmolLM2-135M's. The bf16 weights (269 MB) are larger than any L3 of these machines.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kvroll_core.budget import WEIGHT_BLOCK
from kvroll_core.precision.formats import KV_FORMATS, PAGE_TOKENS, WEIGHT_FORMATS
from kvroll_core.precision.sealing import OPEN_FORMAT
from kvroll_kernels.arrays import BF16, FP32, UINT8, zeros
from kvroll_kernels.calls import AttentionCall
from kvroll_kernels.native.ops import NativeOps
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.reference.tensors import array_of
from kvroll_worker.quant.weights import quantise

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, LAYERS = 576, 9, 3, 64, 1536, 49152, 30
DISTINCT_PAGES = 8
QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM
PER_LAYER = [(QKV, HIDDEN), (HIDDEN, HEADS * HEAD_DIM), (2 * FFN, HIDDEN), (HIDDEN, FFN)]


def best_seconds(run: Callable[[], object], budget_s: float) -> float:
    """The fastest of the runs that fit the budget (at least three): neighbours only ever slow a run down."""
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < budget_s:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def stream_bytes_per_second(threads: int, budget_s: float) -> float:
    """A read of 256 MiB, summed; the roof that the kernels are compared to."""
    torch.set_num_threads(threads)
    data = torch.ones(64 << 20, dtype=torch.float32)
    return data.numel() * 4 / best_seconds(data.sum, budget_s)


def linears(ops: NativeOps, kind: str) -> tuple[list[tuple[Any, int, int]], int]:
    """All linears of the model, head included and bf16, and their bytes."""
    handles, total = [], 0
    for outputs, inputs in PER_LAYER * LAYERS + [(VOCAB, HIDDEN)]:
        weight = array_of(torch.randn(outputs, inputs) * inputs**-0.5)
        if outputs != VOCAB:
            stored = quantise(weight, kind)
            handles.append((ops.linear(stored.payload, stored.scale, None, stored.zero), outputs, inputs))
            total += int(outputs * inputs * WEIGHT_FORMATS[kind].element_bytes(WEIGHT_BLOCK))
        else:
            handles.append((ops.linear(weight.astype(BF16)), outputs, inputs))
            total += outputs * inputs * 2
    return handles, total


def bench_linears(
    ops: NativeOps, model: tuple[list[tuple[Any, int, int]], int], rows: int, stream: float, budget_s: float
) -> dict[str, float]:
    """One pass over every weight of the model at `rows` activations."""
    handles, total = model
    x, out = ops.buffer(array_of(torch.randn(rows, FFN))), ops.buffer(zeros((rows, VOCAB), FP32))

    def run() -> None:
        for handle, _, _ in handles:
            ops.gemm(handle, x, out, rows)

    seconds = best_seconds(run, budget_s)
    flops = sum(2 * rows * outputs * inputs for _, outputs, inputs in handles)
    return {
        "ms": seconds * 1e3,
        "gb_per_s": total / seconds / 1e9,
        "share_of_stream": total / seconds / stream,
        "gflop_per_s": flops / seconds / 1e9,
    }


def open_storage(layout: PageLayout) -> tuple[Any, ...]:
    """One open page for all of the residual's, and the least residual: nothing where the format has no open pages."""
    if not layout.is_sealed:
        return ()
    beside = PageLayout(OPEN_FORMAT, layout.layers, layout.kv_heads, layout.head_dim)
    return zeros((1, beside.page_bytes), UINT8), PAGE_TOKENS


@cache
def normal_page(ops: NativeOps, kv_format: str, seed: int) -> Any:
    """A page of K and V drawn from the normal distribution: neither zeros nor subnormals, which a CPU multiplies at other speeds."""
    values = PageLayout("fp32", LAYERS, KV_HEADS, HEAD_DIM)
    page = zeros((values.page_bytes,), UINT8)
    payload = values.payload(page)
    payload[:] = np.random.default_rng(seed).standard_normal(payload.shape, dtype=np.float32)
    return ops.transcode(page, "fp32", kv_format, LAYERS, KV_HEADS, HEAD_DIM)


def bench_attention(
    ops: NativeOps, kv_format: str, batch: int, context: int, stream: float, budget_s: float
) -> dict[str, float]:
    """Decode attention of all layers; bytes are those of the stored K and V."""
    layout = PageLayout(kv_format, LAYERS, KV_HEADS, HEAD_DIM)
    pages = context // 32
    storage = zeros((batch * pages, layout.page_bytes), UINT8)
    beside = open_storage(layout)
    pool = ops.kv_pool(
        storage, kv_format, LAYERS, KV_HEADS, HEAD_DIM, *beside
    )  # before the first touch, for huge pages
    for index, page in enumerate(storage):  # some pages over and over: what they hold is what a step would have stored
        page[:] = normal_page(ops, kv_format, index % DISTINCT_PAGES)

    def bind(tensor: torch.Tensor) -> Any:
        return ops.buffer(array_of(tensor))

    q, out = bind(torch.randn(batch, QKV)), bind(torch.empty(batch, HEADS * HEAD_DIM))
    table = bind(torch.randperm(batch * pages).view(batch, pages))
    opened = bind(torch.zeros(batch, pages, dtype=torch.int64)) if beside else None
    sequence = bind(torch.arange(batch, dtype=torch.int32))
    length = bind(torch.full((batch,), context, dtype=torch.int32))

    scale, rows_of = HEAD_DIM**-0.5, (sequence, length)
    calls = [
        AttentionCall(pool, layer, q, QKV, out, HEADS, table, pages, *rows_of, scale, open_table=opened)
        for layer in range(LAYERS)
    ]

    def run() -> None:
        for call in calls:
            ops.paged_attention(call, batch)

    seconds = best_seconds(run, budget_s)
    total = batch * pages * layout.page_bytes
    return {
        "ms": seconds * 1e3,
        "gb_per_s": total / seconds / 1e9,
        "share_of_stream": total / seconds / stream,
    }


def bench(threads: int, budget_s: float) -> dict[str, Any]:
    """Every case at one thread count."""
    torch.manual_seed(0)
    ops = NativeOps(threads=threads)
    stream = stream_bytes_per_second(threads, budget_s)
    cases: dict[str, Any] = {"threads": threads, "stream_gb_per_s": stream / 1e9, "build": ops.build_hash()}
    cases["values"] = "weights, activations, K and V are normally distributed"
    for kind in WEIGHT_FORMATS:
        model = linears(ops, kind)
        for rows in (1, 8, 64):
            cases[f"linears_{kind}_m{rows}"] = bench_linears(ops, model, rows, stream, budget_s)
    for kv_format in (name for name, entry in KV_FORMATS.items() if entry.built):
        for batch, context in ((1, 2048), (8, 2048)):
            name = f"attention_{kv_format}_b{batch}_{context}"
            cases[name] = bench_attention(ops, kv_format, batch, context, stream, budget_s)
    return cases


def main() -> None:
    """Prints the table and writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--budget-s", type=float, default=0.5, help="seconds a case")
    parser.add_argument("--out", type=Path, default=Path("build/bench/kernels.json"))
    arguments = parser.parse_args()
    result = bench(arguments.threads, arguments.budget_s)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(
        f"{result['build']}, {result['threads']} threads, stream {result['stream_gb_per_s']:.1f} GB/s; {result['values']}"
    )
    for name, case in result.items():
        if isinstance(case, dict):
            print(f"{name:26}" + "".join(f"  {key} {value:8.2f}" for key, value in case.items()))


if __name__ == "__main__":
    main()
