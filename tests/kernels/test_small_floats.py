"""The small floats that pages and weights are stored in, against ml_dtypes on every code and on every border between codes."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from kvroll_kernels.calls import KvWriteCall
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.reference.tensors import array_of, tensor_of
from tests.kernels.tensor_ops import TensorOps

DIM = 64


def written(ops: TensorOps, kv_format: str, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, PageLayout]:
    """Payload bytes and scales of K vectors [n <= 32, d], stored as one page's tokens."""
    rows, dim = vectors.shape
    layout = PageLayout(kv_format, 1, 1, dim)
    storage = torch.zeros(1, layout.page_bytes, dtype=torch.uint8)
    ids = torch.zeros(rows, dtype=torch.int64), torch.arange(rows, dtype=torch.int32)
    qkv = torch.cat([vectors, torch.zeros_like(vectors)], dim=1).contiguous()
    pool = ops.kv_pool(storage, kv_format, 1, 1, dim)
    ops.kv_write(KvWriteCall(pool, 0, ops.buffer(qkv), 2 * dim, 0, dim, *(ops.buffer(i) for i in ids)), rows)
    payload = tensor_of(layout.payload(array_of(storage[0])))[0, 0, 0, :rows]
    scales = tensor_of(layout.scales(array_of(storage[0])))[0, 0, 0, :rows] if layout.has_scales else torch.ones(rows)
    return payload, scales, layout


def borders(dtype: Any, largest: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Every finite magnitude, the midpoint to the next one, and the fp32 numbers beside each, with both signs."""
    bits = np.arange(1 << 7 if dtype == ml_dtypes.float8_e4m3fn else 1 << 15)
    codes = bits.astype(np.uint8 if dtype == ml_dtypes.float8_e4m3fn else np.uint16)
    values = np.unique(codes.view(dtype).astype(np.float32))
    values = values[np.isfinite(values) & (values <= largest)]
    points = np.concatenate([values, (values[:-1] + values[1:]) / 2]).astype(np.float32)
    near = np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))])
    near = near[np.abs(near) <= largest]
    return np.concatenate([near, -near])


def in_vectors(points: np.ndarray[Any, Any], largest: float, rows: int = 32) -> torch.Tensor:
    """The points as vectors of 64 that all begin with `largest`, so that the scale is 1."""
    width = DIM - 1
    padded = np.zeros(-(-points.size // width) * width, dtype=np.float32)
    padded[: points.size] = points
    table = padded.reshape(-1, width)[: rows if points.size <= rows * width else None]
    return torch.from_numpy(np.concatenate([np.full((table.shape[0], 1), largest, dtype=np.float32), table], axis=1))


def test_every_border_between_e4m3_codes_rounds_as_in_ml_dtypes(any_ops: TensorOps) -> None:
    points = in_vectors(borders(ml_dtypes.float8_e4m3fn, 448.0), 448.0)
    for first in range(0, points.shape[0], 32):
        vectors = points[first : first + 32]
        payload, scales, _ = written(any_ops, "fp8_e4m3", vectors)
        assert bool((scales == 1).all())
        expected = vectors.numpy().astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        assert np.array_equal(payload.view(torch.uint8).numpy(), expected)


def test_every_border_between_fp16_codes_rounds_as_in_numpy(any_ops: TensorOps) -> None:
    step = 61 if any_ops.name == "reference" else 7
    points = in_vectors(borders(np.float16, 65504.0)[::step], 0.0, rows=1 << 20)
    for first in range(0, points.shape[0], 32):
        vectors = points[first : first + 32].contiguous()
        payload, _, _ = written(any_ops, "fp16", vectors)
        assert np.array_equal(payload.numpy().view(np.uint16), vectors.numpy().astype(np.float16).view(np.uint16))


def test_fp16_saturates_and_fp32_keeps_every_bit(any_ops: TensorOps) -> None:
    vectors = torch.tensor([[65519.0, 65520.0, -1e30, float("inf"), 6e-8, 1e-10, -0.0, 3.0] * 2])
    payload, _, _ = written(any_ops, "fp16", vectors)
    assert payload[0, :8].tolist() == [65504, 65504, -65504, float("inf"), 5.960464477539063e-08, 0, 0, 3]
    assert bool((written(any_ops, "fp32", vectors)[0].view(torch.int32) == vectors.view(torch.int32)).all())


def test_e4m3_by_hand(any_ops: TensorOps) -> None:
    """absmax 448 makes the scale 1: E4M3 has steps of 32 at the top, 2^-9 at the bottom, ties go to even."""
    row = torch.tensor([[448.0, 431.9, 432.0, 400.0, -272.0, 1.0625, 2**-9, 2**-10, 3 * 2**-10] + [0.0] * 7])
    payload, scales, _ = written(any_ops, "fp8_e4m3", row)
    assert payload[0, :9].float().tolist() == [448, 416, 448, 384, -256, 1, 2**-9, 0, 2**-8]
    assert scales.tolist() == [1.0]


@pytest.mark.parametrize(
    ("largest", "exponent"),
    [(1.0, -8), (1.75, -8), (1.7500001, -7), (1.999, -7), (2.0, -7), (448.0, 0), (449.0, 1), (1e-30, -28)],
)
def test_the_shared_exponent_is_the_smallest_that_clips_nothing(
    any_ops: TensorOps, largest: float, exponent: int
) -> None:
    """1.7500001 is where the specification's floor rule begins to clip: absmax / 2^-8 would be above 448."""
    row = torch.tensor([[largest, -largest / 3] + [0.0] * 30])
    payload, scales, _ = written(any_ops, "mxfp8", row)
    assert scales.tolist() == [[exponent + 127]]
    stored = payload[0, :2].float() * 2.0**exponent
    assert bool(((stored - row[0, :2]).abs() <= row[0, :2].abs() / 16 + 2.0 ** (exponent - 10)).all())


def test_blocks_of_a_vector_have_scales_of_their_own(any_ops: TensorOps) -> None:
    """head_dim 80 is two blocks and a half; a large block does not flatten its neighbour."""
    row = torch.cat([torch.full((32,), 400.0), torch.full((32,), 2**-12), torch.full((16,), 3.0)]).view(1, 80)
    payload, scales, layout = written(any_ops, "mxfp8", row)
    assert layout.blocks == 3
    assert scales.tolist() == [[127, 127 - 20, 127 - 7]]
    assert payload[0, [0, 32, 64]].float().tolist() == [384.0, 256.0, 384.0]


@pytest.mark.parametrize("kv_format", ["fp8_e4m3", "int8", "mxfp8", "fp16"])
def test_what_is_no_number_is_stored_alike_everywhere(native: TensorOps, reference: TensorOps, kv_format: str) -> None:
    rows = torch.randn(3, DIM)
    rows[0, 5], rows[1, 40], rows[2, 7] = float("nan"), float("inf"), float("-inf")
    found, expected = written(native, kv_format, rows), written(reference, kv_format, rows)
    assert torch.equal(found[0].view(torch.uint8), expected[0].view(torch.uint8))
    assert torch.equal(found[1].contiguous().view(torch.uint8), expected[1].contiguous().view(torch.uint8))
