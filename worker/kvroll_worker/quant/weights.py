"""From a matrix to the stored form of a weight dtype (layouts: `kvroll_core.formats`, `kvroll_kernels.weight_layout`)."""

from typing import Any, NamedTuple

import numpy as np

from kvroll_core.budget import WEIGHT_BLOCK
from kvroll_core.formats import weight_format
from kvroll_kernels.arrays import BF16, E4M3, FP16, FP32, INT8, UINT8, Array

FP16_MAX, E4M3_MAX, INT8_MAX, MX_BLOCK = 65504.0, 448.0, 127.0, 32
MIN_ABSMAX = np.float32(1e-12)
# Borders between the magnitudes of E2M1; a value on a border goes to the even code.
_E2M1_BORDERS = np.array((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0), dtype=FP32)
_PLAIN = {"fp32": FP32, "bf16": BF16, "fp16": FP16}
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
    name = weight_format(dtype).name
    if name in _PLAIN:
        kept = np.clip(weight, -FP16_MAX, FP16_MAX) if name == "fp16" else weight
        return StoredWeight(np.ascontiguousarray(kept, dtype=_PLAIN[name]))
    form = {"int8": _int8, "fp8_e4m3": _fp8, "int4": _int4, "mxfp4": _mxfp4}[name]
    step = max(1, _ELEMENTS_AT_ONCE // weight.shape[1])
    parts = [form(weight[row : row + step].astype(FP32)) for row in range(0, weight.shape[0], step)]
    scale, zero = (_joined([part[field] for part in parts]) for field in (1, 2))
    return StoredWeight(np.concatenate([part.payload for part in parts]), scale, zero)


def _joined(parts: list[Array | None]) -> Array | None:
    found = [part for part in parts if part is not None]
    return np.concatenate(found) if found else None


def _int8(values: Array) -> StoredWeight:
    scale, levels = _per_channel(values, INT8_MAX)
    np.rint(levels, out=levels)
    return StoredWeight(levels.astype(INT8), scale)


def _fp8(values: Array) -> StoredWeight:
    scale, levels = _per_channel(values, E4M3_MAX)
    return StoredWeight(levels.astype(E4M3), scale)


def _per_channel(values: Array, largest: float) -> tuple[Array, Array]:
    """Scale [out] and values / scale within +-largest."""
    scale = np.maximum(np.abs(values).max(axis=1), MIN_ABSMAX) / np.float32(largest)
    levels = values / scale[:, None]
    return scale, np.clip(levels, -largest, largest, out=levels)


def _int4(values: Array) -> StoredWeight:
    blocks = _in_blocks(values, WEIGHT_BLOCK)
    low = blocks.min(axis=2).astype(FP16)
    base = low.astype(FP32)
    steps = np.maximum((blocks.max(axis=2) - base) / np.float32(15), np.float32(2.0**-14)).astype(FP16)
    codes = np.clip(np.rint((blocks - base[..., None]) / steps.astype(FP32)[..., None]), 0, 15)
    return StoredWeight(_in_rows(codes.astype(UINT8), values), steps, low)


def _mxfp4(values: Array) -> StoredWeight:
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
