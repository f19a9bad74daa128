"""What each weight dtype stores, against torch's and ml_dtypes' roundings and by the width of its steps."""

import ml_dtypes
import numpy as np
import pytest
import torch

from kvroll_core.precision.formats import WEIGHT_FORMATS, UnknownFormatError
from kvroll_kernels.arrays import BF16, FP16, FP32, UINT8, Array
from kvroll_kernels.reference.tensors import tensor_of
from kvroll_kernels.reference.weights import dequantise
from kvroll_kernels.weight_form import WeightForm
from kvroll_kernels.weight_layout import weight_form
from kvroll_worker.quant.weights import quantise, stored_form


def matrix(outputs: int = 24, inputs: int = 200) -> Array:
    weight = np.random.default_rng(3).standard_normal((outputs, inputs), dtype=np.float32).astype(BF16)
    weight[3] = 0
    return weight


@pytest.mark.parametrize("dtype", WEIGHT_FORMATS)
def test_what_is_stored_is_known_by_its_parts_and_near_the_source(dtype: str) -> None:
    weight = matrix()
    stored = quantise(weight, dtype)
    assert weight_form(*stored).kind == dtype
    source = tensor_of(weight).double()
    error = (dequantise(*stored) - source).square().mean().sqrt() / source.square().mean().sqrt()
    expected = {"fp8_e4m3": 0.027, "int8": 0.008, "int4": 0.1, "mxfp4": 0.13}.get(dtype, 0)
    assert expected / 2 <= error <= expected


@pytest.mark.parametrize("dtype", WEIGHT_FORMATS)
def test_a_large_matrix_is_stored_like_its_rows(dtype: str) -> None:
    """Rows are quantised a few at a time; where one batch ends must not show."""
    weight = matrix(150, 1024)
    whole, rows = quantise(weight, dtype), [quantise(weight[i : i + 1], dtype) for i in range(150)]
    for field in range(3):
        parts = [row[field] for row in rows]
        found = whole[field]
        assert [part is None for part in parts] == [found is None] * len(rows)
        if found is not None:
            assert found.tobytes() == b"".join(part.tobytes() for part in parts if part is not None)


def test_fp8_weights_round_as_in_torch() -> None:
    weight = tensor_of(matrix()).float()
    stored = quantise(weight.numpy(), "fp8_e4m3")
    assert stored.scale is not None
    levels = (weight / tensor_of(stored.scale)[:, None]).clamp(-448, 448)
    payload = tensor_of(stored.payload)
    assert torch.equal(payload.view(torch.uint8), levels.to(torch.float8_e4m3fn).view(torch.uint8))
    assert bool((payload.float().abs().amax(dim=1)[[0, 1, 2, 4]] == 448).all())


@pytest.mark.parametrize(("block", "blocks"), [(32, 7), (64, 4), (128, 2)])
def test_int4_is_within_half_a_step_of_its_block(block: int, blocks: int) -> None:
    weight = tensor_of(matrix()).float()
    stored = quantise(weight.numpy(), "int4", block)
    assert weight_form(*stored) == WeightForm("int4", block) == stored_form("int4", block)
    assert stored.scale is not None
    assert stored.scale.shape == (24, blocks)  # 200 inputs: 7 of 32, the last of 8; 4 of 64; 2 of 128
    assert int(stored.payload.max()) == 15
    steps = tensor_of(stored.scale).double().repeat_interleave(block, dim=1)[:, :200]
    # fp16 rounds the zero and, times 15, the scale: 2^-11 of each on top of half a step.
    slack = weight.double().abs().amax() * 2**-10
    assert bool(((dequantise(*stored) - weight.double()).abs() <= steps / 2 + slack).all())


def test_smaller_blocks_err_less() -> None:
    weight = matrix(64, 1024)
    errors = [
        (dequantise(*quantise(weight, "int4", block)) - tensor_of(weight).double()).square().mean().item()
        for block in (32, 64, 128)
    ]
    assert errors == sorted(errors)
    assert errors[0] < 0.7 * errors[2]


def test_a_block_size_that_int4_has_not_is_refused() -> None:
    with pytest.raises(
        UnknownFormatError, match=r"weight block size 48 is unknown to int4; use one of \(32, 64, 128\)"
    ):
        quantise(matrix(), "int4", 48)
    assert stored_form("int8", 48) == WeightForm("int8", 0)


def test_mxfp4_rounds_every_value_as_ml_dtypes_does() -> None:
    """All of bf16's values up to the largest code, which sets the scale to one."""
    points = np.arange(0x3000, 0x40C1, dtype=np.uint16).view(BF16).astype(FP32)
    points = np.concatenate([points, -points, [0.0, -0.0]]).astype(FP32)
    rows = np.full((len(points), 32), 6.0, FP32)
    rows[:, 1] = points
    expected = points.astype(ml_dtypes.float4_e2m1fn).astype(np.float64)
    assert np.array_equal(dequantise(*quantise(rows, "mxfp4")).numpy()[:, 1], expected)


def test_mxfp4_codes_are_those_of_ml_dtypes() -> None:
    """The first element makes the scale 1; then every code and every border between two, with both signs."""
    codes = np.arange(8, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    points = np.concatenate([codes, (codes[:-1] + codes[1:]) / 2])
    row = np.concatenate([[6.0], points, [6.0], -points]).astype(np.float32)[None]
    stored = quantise(row, "mxfp4")
    assert stored.scale is not None
    assert stored.scale.tolist() == [[127]]
    expected = row.astype(ml_dtypes.float4_e2m1fn).astype(np.float64)
    assert np.array_equal(dequantise(*stored).numpy(), expected)


@pytest.mark.parametrize(("largest", "exponent"), [(6.0, 0), (6.01, 1), (1.0, -2), (1.5, -2), (1.51, -1)])
def test_the_shared_exponent_of_mxfp4_clips_nothing(largest: float, exponent: int) -> None:
    stored = quantise(np.array([[largest] + [0.1] * 31], dtype=FP32), "mxfp4")
    assert stored.scale is not None
    assert stored.scale.tolist() == [[127 + exponent]]


def test_fp32_and_fp16_keep_what_they_can() -> None:
    weight = np.array([[1.0 + 2**-20, 65519.0, -3.0]], dtype=FP32)
    assert np.array_equal(quantise(weight, "fp32").payload, weight)
    assert quantise(weight, "fp16").payload.tolist() == [[1.0, 65504.0, -3.0]]
    with pytest.raises(OverflowError, match=r"numbers that fp16 holds .* found 1e\+06"):
        quantise(np.array([[1.0, 1e6]], dtype=FP32), "fp16")


def test_parts_that_belong_to_no_dtype_are_refused() -> None:
    codes, scale = np.zeros((4, 64), dtype=UINT8), np.ones((4, 1), dtype=FP16)
    for parts in (
        (codes, scale, None),
        (codes, None, None),
        (codes.astype(FP32), scale, None),
        (codes, scale[:2], scale),
    ):
        with pytest.raises(ValueError, match="a weight is fp32, bf16 or fp16 without a scale"):
            weight_form(*parts)
