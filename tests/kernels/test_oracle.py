"""The oracle's stored forms against plain definitions: written from the specifications in numpy and ml_dtypes, not from a kernel."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.reference.kv_vectors import fetch, float_of_e8m0, quantise, store
from kvroll_kernels.reference.sealed_pages import quantise_groups
from kvroll_kernels.reference.tensors import array_of, tensor_of

Floats = np.ndarray[Any, np.dtype[np.float32]]
NO_NUMBERS = [math.nan, math.inf, -math.inf]


def vectors() -> Floats:
    """Head vectors of 64: ordinary, tiny, huge, all zeros, and three that hold what is no number."""
    values = np.random.default_rng(11).normal(size=(12, 64)).astype(np.float32)
    values[1] *= 1e-9
    values[2] *= 1e6
    values[3] = 0
    values[4, 1:] = 0
    for row, value in enumerate(NO_NUMBERS, 5):
        values[row, 40] = value
    return values


def stored(kv_format: str, values: Floats) -> tuple[Any, Any]:
    payload, scales = quantise(PageLayout(kv_format, 1, 1, 64), torch.from_numpy(values))
    return array_of(payload), None if scales is None else array_of(scales)


def vector_scale(row: Floats, most: float) -> np.float32:
    if not np.isfinite(row).all():
        return np.float32(np.nan)
    return np.float32(max(np.float32(np.abs(row).max()), np.float32(1e-6)) / np.float32(most))


def test_int8() -> None:
    values = vectors()
    payload, scales = stored("int8", values)
    for row, codes, scale in zip(values, payload, scales, strict=True):
        expected = vector_scale(row, 127)
        assert np.array_equal(scale, expected, equal_nan=True)
        wanted = np.rint(row / expected) if np.isfinite(expected) else np.zeros(64)
        assert np.array_equal(codes, wanted)


def test_fp8_e4m3() -> None:
    values = vectors()
    payload, scales = stored("fp8_e4m3", values)
    for row, codes, scale in zip(values, payload, scales, strict=True):
        expected = vector_scale(row, 448)
        assert np.array_equal(scale, expected, equal_nan=True)
        wanted = (row / expected).astype(ml_dtypes.float8_e4m3fn) if np.isfinite(expected) else np.zeros(64)
        assert np.array_equal(codes.astype(np.float32), wanted.astype(np.float32))


def test_mxfp8() -> None:
    """OCP MX: E4M3 elements under E8M0 scales of 32, the smallest power of two that clips nothing; NaN is the scale 255."""
    values = vectors()
    payload, scales = stored("mxfp8", values)
    for row, codes, row_scales in zip(values, payload, scales, strict=True):
        for at, scale in enumerate(row_scales):
            block, found = row[32 * at : 32 * at + 32], codes[32 * at : 32 * at + 32].astype(np.float32)
            if not np.isfinite(block).all():
                assert (scale, found.any()) == (255, False)
                continue
            most = max(float(np.abs(block).max()), float(np.float32(1e-6)))
            exponent = int(np.ceil(np.log2(most / 448)))
            exponent -= most <= 448 * 2.0 ** (exponent - 1)
            assert scale == 127 + exponent
            wanted = (block / np.float32(2.0**exponent)).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize(("kv_format", "dtype"), [("fp32", np.float32), ("bf16", ml_dtypes.bfloat16), ("fp16", np.float16)])  # fmt: skip
def test_plain_formats(kv_format: str, dtype: Any) -> None:
    values = vectors()
    held = np.where(np.isfinite(values), np.clip(values, -65504, 65504), values) if kv_format == "fp16" else values
    payload, scales = stored(kv_format, values)
    assert scales is None
    assert np.array_equal(payload.astype(np.float32), held.astype(dtype).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("bits", [4, 2])
def test_kivi_groups(bits: int) -> None:
    """KIVI (arXiv 2402.02750, section 3.2) with scale and zero in fp16."""
    values, most = vectors(), 2**bits - 1
    codes, scales, zeros = (array_of(part) for part in quantise_groups(torch.from_numpy(values), bits))
    for row, found, scale, zero in zip(values, codes, scales, zeros, strict=True):
        if not np.isfinite(row).all():
            assert np.isnan([scale, zero]).all()
            assert not found.any()
            continue
        held = np.clip(row, -65504, 65504)
        low, step = np.float16(held.min()), np.float16((held.max() - held.min()) / np.float32(most))
        assert (zero, scale) == (low, step)
        if step > 0:
            wanted = np.clip(np.rint((held - np.float32(low)) / np.float32(step)), 0, most)
            assert np.array_equal(found, wanted)
        else:
            assert not found.any()


def test_every_code_is_read_as_ml_dtypes_reads_it() -> None:
    codes = np.arange(256, dtype=np.uint8)
    scales = float_of_e8m0(torch.from_numpy(codes)[1:]).numpy()
    assert np.array_equal(scales, codes[1:].view(ml_dtypes.float8_e8m0fnu).astype(np.float32), equal_nan=True)
    for kv_format, dtype, every in (
        ("fp8_e4m3", ml_dtypes.float8_e4m3fn, codes),
        ("fp16", np.float16, np.arange(1 << 16, dtype=np.uint16)),
        ("bf16", ml_dtypes.bfloat16, np.arange(1 << 16, dtype=np.uint16)),
    ):
        layout = PageLayout(kv_format, 1, 1, 16)
        for first in range(0, every.size, 512):
            page = np.zeros(layout.page_bytes, dtype=np.uint8)
            part = every[first : first + 512]
            layout.payload(page).view(every.dtype).reshape(-1)[: part.size] = part
            if layout.has_scales:
                layout.scales(page)[:] = 1
            found = fetch(layout, page, (0, 0, 0)).numpy().reshape(-1)[: part.size]
            assert np.array_equal(found, part.view(dtype).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("kv_format", ["int8", "fp8_e4m3", "mxfp8", "fp16", "bf16", "fp32"])
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_read_back_as_none(kv_format: str, value: float) -> None:
    layout = PageLayout(kv_format, 1, 1, 64)
    page = np.zeros(layout.page_bytes, dtype=np.uint8)
    row = torch.randn(64)
    row[40] = value
    store(layout, page, (0, 0, 0, 3), row)
    assert not bool(fetch(layout, page, (0, 0, 0, 3))[40].isfinite())
    assert not tensor_of(layout.payload(page))[0, 1].view(torch.uint8).any(), "V was not written"
