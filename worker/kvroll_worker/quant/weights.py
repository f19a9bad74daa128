"""From a matrix to the stored form of a weight dtype (layouts: `kvroll_core.precision.formats`, `kvroll_kernels.weight_layout`)."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kvroll_core.precision.formats import WEIGHT_BLOCK, chosen_block, weight_format
from kvroll_kernels.arrays import BF16, E4M3, FP16, FP32, INT8, UINT8, Array
from kvroll_kernels.page_layout import MX_BLOCK
from kvroll_kernels.weight_form import WeightForm

FP16_MAX, E4M3_MAX, INT8_MAX = 65504.0, 448.0, 127.0
MIN_ABSMAX = np.float32(1e-12)
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


def quantise(weight: Array, dtype: str, block: int = WEIGHT_BLOCK) -> StoredWeight:
    """`weight` [out, in] in the stored form; all roundings are half to even.

    fp8_e4m3, int8: symmetric, a scale per output channel = absmax / 448, / 127. int4: a scale and a zero for each `block` inputs
    (the last block of a row may be shorter), value = scale * code + zero. mxfp4: E2M1 with the smallest power of two per 32
    inputs that clips nothing.

    Raises:
        FormatNotBuiltError, UnknownFormatError: a dtype that this version cannot run.
    """
    parts = list(quantised_rows([weight], dtype, block))
    payload = np.concatenate([part.payload for part in parts])
    return StoredWeight(payload, _joined(part.scale for part in parts), _joined(part.zero for part in parts))


def stored_form(dtype: str, block: int = WEIGHT_BLOCK) -> WeightForm:
    """What `Ops.empty_linear` is to make room for.

    Raises:
        FormatNotBuiltError, UnknownFormatError: a dtype that this version cannot run, or a block size that it has not.
    """
    return WeightForm(weight_format(dtype).name, MX_BLOCK if dtype == "mxfp4" else chosen_block(dtype, block))


def quantised_rows(batches: Iterable[Array], dtype: str, block: int = WEIGHT_BLOCK) -> Iterator[StoredWeight]:
    """`quantise` of a matrix that arrives some rows at a time and leaves so: it is never there as a whole.

    Raises:
        FormatNotBuiltError, UnknownFormatError: a dtype that this version cannot run, or a block size that it has not.
        OverflowError: a number is out of the range that the dtype's fp16 parts have.
    """
    form = _FORMS[weight_format(dtype).name]
    if size := chosen_block(dtype, block):
        form = partial(form, size=size)
    for batch in batches:
        step = max(1, _ELEMENTS_AT_ONCE // batch.shape[1])
        for row in range(0, len(batch), step):
            rows = batch[row : row + step]
            with np.errstate(over="ignore"):
                stored = form(rows)
            _refuse_overflow(stored, dtype, rows)
            yield stored


def _joined(fields: Iterable[Array | None]) -> Array | None:
    there = [field for field in fields if field is not None]
    return np.concatenate(there) if there else None


def _fp16(values: Array) -> StoredWeight:
    with np.errstate(over="ignore"):  # `_refuse_overflow` tells it
        return StoredWeight(values.astype(FP16))


def _refuse_overflow(stored: StoredWeight, dtype: str, rows: Array) -> None:
    """What is kept in fp16 (a payload, or int4's scales and zeros) holds numbers up to 65504."""
    for part in stored:
        if part is not None and part.dtype == FP16 and not np.isfinite(part).all():
            raise OverflowError(
                f"expected numbers that {dtype} holds (its fp16 ends at {FP16_MAX:g}), found {float(np.abs(rows.astype(FP32)).max()):g};"
                " load as bf16, int8 or fp8_e4m3"
            )


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


def _int4(rows: Array, size: int = WEIGHT_BLOCK) -> StoredWeight:
    values = rows.astype(FP32)
    blocks = _in_blocks(values, size)
    low = blocks.min(axis=2).astype(FP16)
    base = low.astype(FP32)
    steps = np.maximum((blocks.max(axis=2) - base) / np.float32(15), np.float32(2.0**-14)).astype(FP16)
    levels = blocks - base[..., None]
    levels /= steps.astype(FP32)[..., None]
    np.clip(np.rint(levels, out=levels), 0, 15, out=levels)
    return StoredWeight(_in_rows(levels.astype(UINT8), values), steps, low)


def _mxfp4(rows: Array) -> StoredWeight:
    values = rows.astype(FP32)
    blocks = _in_blocks(values, MX_BLOCK)
    magnitudes = np.abs(blocks)
    bits = np.maximum(magnitudes.max(axis=2), MIN_ABSMAX).view(np.int32)
    # The largest E2M1 is 1.5 * 2^2. To divide by a power of two is to multiply by another one, exactly.
    exponents = (bits >> 23) - 2 + ((bits & 0x7FFFFF) > 0x400000)
    magnitudes *= ((254 - exponents) << 23).view(FP32)[..., None]
    # Codes go up by one each 1/2 below 2, each 1 below 4, each 2 above. The flattest line is the lowest where it counts, and an
    # even level is an even code on each, so rint sends ties to the even code.
    codes = np.rint(magnitudes + magnitudes)
    np.minimum(codes, np.rint(magnitudes) + 2, out=codes)
    magnitudes *= np.float32(0.5)
    np.minimum(codes, np.rint(magnitudes, out=magnitudes) + 4, out=codes)
    stored = codes.astype(UINT8)
    stored |= np.signbit(blocks).view(UINT8) << 3
    return StoredWeight(_in_rows(stored, values), exponents.astype(UINT8))


def _in_blocks(values: Array, block: int) -> Array:
    """[out, blocks, block]; the last block repeats the row's last element, which changes neither extreme."""
    if missing := -values.shape[1] % block:
        values = np.pad(values, ((0, 0), (0, missing)), mode="edge")
    return values.reshape(values.shape[0], -1, block)


def _in_rows(blocks: Array, values: Array) -> Array:
    return np.ascontiguousarray(blocks.reshape(values.shape[0], -1)[:, : values.shape[1]])


_FORMS: dict[str, Callable[..., StoredWeight]] = {
    "fp32": lambda block: StoredWeight(block.astype(FP32, copy=False)),
    "bf16": lambda block: StoredWeight(block.astype(BF16, copy=False)),
    "fp16": _fp16,
    "fp8_e4m3": _fp8,
    "int8": _int8,
    "int4": _int4,
    "mxfp4": _mxfp4,
}
