"""From a matrix to the stored form of a weight dtype (layouts: `kvroll_core.formats`, `kvroll_kernels.weight_layout`)."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from kvroll_core.budget import WEIGHT_BLOCK
from kvroll_core.formats import weight_format
from kvroll_kernels.arrays import BF16, E4M3, FP16, FP32, INT8, UINT8, Array

FP16_MAX, E4M3_MAX, INT8_MAX, MX_BLOCK = 65504.0, 448.0, 127.0, 32
MIN_ABSMAX = np.float32(1e-12)
# Borders between the magnitudes of E2M1; a value on a border goes to the even code.
_E2M1_BORDERS = np.array((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0), dtype=FP32)
# A few rows at a time stay in the cache and in memory that is already there: fresh pages cost more than the arithmetic.
_ELEMENTS_AT_ONCE = 128 * 1024


class StoredWeight(NamedTuple):
    """What `Ops.linear` packs: the payload [out, in], a scale and a zero where the dtype has them."""

    payload: Array
    scale: Array | None = None
    zero: Array | None = None


def source_dtype(dtype: str) -> np.dtype[Any]:
    """What a checkpoint's tensor is read as before `quantise`; bf16 unless the dtype keeps more of it."""
    return FP32 if dtype in ("fp32", "fp16") else BF16


def quantise(weight: Array, dtype: str) -> StoredWeight:
    """`weight` [out, in] in the stored form; all roundings are half to even.

    fp8_e4m3, int8: symmetric, a scale per output channel = absmax / 448, / 127. int4: a scale and a zero for each 64 inputs,
    value = scale * code + zero. mxfp4: E2M1 with the smallest power of two per 32 inputs that clips nothing.

    Raises:
        FormatNotBuiltError, UnknownFormatError: a dtype that this version cannot run.
    """
    return quantise_blocks([weight], weight.shape[0], dtype)


def quantise_blocks(blocks: Iterable[Array], outputs: int, dtype: str) -> StoredWeight:
    """`quantise` of a matrix of `outputs` rows that arrives some rows at a time: it is never there as a whole.

    Raises:
        FormatNotBuiltError, UnknownFormatError: a dtype that this version cannot run.
        ValueError: another number of rows.
    """
    form = _FORMS[weight_format(dtype).name]
    whole: tuple[Array | None, ...] = ()
    row = 0
    for block in blocks:
        step = max(1, _ELEMENTS_AT_ONCE // block.shape[1])
        for part in (form(block[at : at + step]) for at in range(0, len(block), step)):
            whole = whole or tuple(None if f is None else np.empty((outputs, *f.shape[1:]), f.dtype) for f in part)
            end = row + len(part.payload)
            for target, field in zip(whole, part, strict=True):
                if target is not None and end <= outputs:
                    target[row:end] = field
            row = end
    payload, scale, zero = whole or (None, None, None)
    if payload is None or row != outputs:
        raise ValueError(f"expected a weight of {outputs} rows, found {row}")
    return StoredWeight(payload, scale, zero)


def _fp16(values: Array) -> StoredWeight:
    return StoredWeight(np.clip(values, -FP16_MAX, FP16_MAX).astype(FP16))


def _int8(block: Array) -> StoredWeight:
    values = block.astype(FP32)
    scale, levels = _per_channel(values, INT8_MAX)
    np.rint(levels, out=levels)
    return StoredWeight(levels.astype(INT8), scale)


def _fp8(block: Array) -> StoredWeight:
    scale, levels = _per_channel(block.astype(FP32), E4M3_MAX)
    return StoredWeight(levels.astype(E4M3), scale)


def _per_channel(values: Array, largest: float) -> tuple[Array, Array]:
    """Scale [out] and values / scale within +-largest."""
    scale = np.maximum(np.abs(values).max(axis=1), MIN_ABSMAX) / np.float32(largest)
    levels = values / scale[:, None]
    return scale, np.clip(levels, -largest, largest, out=levels)


def _int4(block: Array) -> StoredWeight:
    values = block.astype(FP32)
    blocks = _in_blocks(values, WEIGHT_BLOCK)
    low = blocks.min(axis=2).astype(FP16)
    base = low.astype(FP32)
    steps = np.maximum((blocks.max(axis=2) - base) / np.float32(15), np.float32(2.0**-14)).astype(FP16)
    codes = np.clip(np.rint((blocks - base[..., None]) / steps.astype(FP32)[..., None]), 0, 15)
    return StoredWeight(_in_rows(codes.astype(UINT8), values), steps, low)


def _mxfp4(block: Array) -> StoredWeight:
    values = block.astype(FP32)
    blocks = _in_blocks(values, MX_BLOCK)
    bits = np.maximum(np.abs(blocks).max(axis=2), MIN_ABSMAX).view(np.int32)
    # The largest E2M1 is 1.5 * 2^2.
    exponents = (bits >> 23) - 2 + ((bits & 0x7FFFFF) > 0x400000)
    levels = blocks / (exponents << 23).view(FP32)[..., None]
    magnitudes = np.abs(levels)
    # How many borders are passed, and how many are passed or reached: they differ on a border alone, where one is even.
    passed, reached = (np.searchsorted(_E2M1_BORDERS, magnitudes, side=side) for side in ("left", "right"))
    codes = np.where(reached % 2 == 0, reached, passed) + 8 * np.signbit(levels)
    return StoredWeight(_in_rows(codes.astype(UINT8), values), exponents.astype(UINT8))


def _in_blocks(values: Array, block: int) -> Array:
    """[out, blocks, block]; the last block repeats the row's last element, which changes neither extreme."""
    missing = -values.shape[1] % block
    return np.pad(values, ((0, 0), (0, missing)), mode="edge").reshape(values.shape[0], -1, block)


def _in_rows(blocks: Array, values: Array) -> Array:
    return np.ascontiguousarray(blocks.reshape(values.shape[0], -1)[:, : values.shape[1]])


_FORMS: dict[str, Callable[[Array], StoredWeight]] = {
    "fp32": lambda block: StoredWeight(block.astype(FP32, copy=False)),
    "bf16": lambda block: StoredWeight(block.astype(BF16, copy=False)),
    "fp16": _fp16,
    "fp8_e4m3": _fp8,
    "int8": _int8,
    "int4": _int4,
    "mxfp4": _mxfp4,
}
