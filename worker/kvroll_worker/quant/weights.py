"""From a matrix to the stored form of a weight dtype (layouts: `kvroll_core.formats`, `kvroll_kernels.weight_layout`)."""

from typing import NamedTuple

import torch

from kvroll_core.budget import WEIGHT_BLOCK
from kvroll_core.formats import weight_format

FP16_MAX, E4M3_MAX, MX_BLOCK = 65504.0, 448.0, 32
# Borders between the magnitudes of E2M1; a value on a border goes to the even code.
_E2M1_BORDERS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


class StoredWeight(NamedTuple):
    """What `Ops.linear` packs: the payload [out, in], a scale and a zero where the dtype has them."""

    payload: torch.Tensor
    scale: torch.Tensor | None = None
    zero: torch.Tensor | None = None


def source_dtype(dtype: str) -> torch.dtype:
    """What a checkpoint's tensor is read as before `quantise`; bf16 unless the dtype keeps more of it."""
    return torch.float32 if dtype in ("fp32", "fp16") else torch.bfloat16


def quantise(weight: torch.Tensor, dtype: str) -> StoredWeight:
    """`weight` [out, in] in the stored form; all roundings are half to even.

    fp8_e4m3, int8: symmetric, a scale per output channel = absmax / 448, / 127. int4: a scale and a zero for each 64 inputs,
    value = scale * code + zero. mxfp4: E2M1 with the smallest power of two per 32 inputs that clips nothing.

    Raises:
        FormatNotBuiltError, UnknownFormatError: a dtype that this version cannot run.
    """
    name = weight_format(dtype).name
    if name in ("fp32", "bf16", "fp16"):
        plain = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
        kept = weight.clamp(-FP16_MAX, FP16_MAX) if name == "fp16" else weight
        return StoredWeight(kept.to(plain).contiguous())
    values = weight.float()
    if name == "int4":
        return _int4(values)
    if name == "mxfp4":
        return _mxfp4(values)
    largest = E4M3_MAX if name == "fp8_e4m3" else 127
    scale = values.abs().amax(dim=1).clamp(min=1e-12) / largest
    levels = values / scale[:, None]
    if name == "fp8_e4m3":
        return StoredWeight(levels.clamp(-largest, largest).to(torch.float8_e4m3fn).contiguous(), scale.contiguous())
    return StoredWeight(torch.round(levels).clamp(-127, 127).to(torch.int8).contiguous(), scale.contiguous())


def _int4(values: torch.Tensor) -> StoredWeight:
    blocks = _in_blocks(values, WEIGHT_BLOCK)
    low = blocks.amin(dim=2).to(torch.float16)
    steps = ((blocks.amax(dim=2) - low.float()) / 15).clamp(min=2.0**-14).to(torch.float16)
    codes = torch.round((blocks - low.float()[..., None]) / steps.float()[..., None]).clamp(0, 15)
    return StoredWeight(_in_rows(codes, values).to(torch.uint8), steps.contiguous(), low.contiguous())


def _mxfp4(values: torch.Tensor) -> StoredWeight:
    blocks = _in_blocks(values, MX_BLOCK)
    bits = blocks.abs().amax(dim=2).clamp(min=1e-12).contiguous().view(torch.int32)
    # The largest E2M1 is 1.5 * 2^2.
    exponents = (bits >> 23) - 2 + ((bits & 0x7FFFFF) > 0x400000).to(torch.int32)
    levels = blocks / (exponents << 23).view(torch.float32)[..., None]
    borders = torch.tensor(_E2M1_BORDERS)
    above, reached = (torch.bucketize(levels.abs(), borders, right=right) for right in (False, True))
    codes = torch.where(above % 2 == 0, above, reached)  # they differ on a border alone, where one of them is even
    codes = codes + 8 * torch.signbit(levels).to(codes.dtype)
    return StoredWeight(_in_rows(codes, values).to(torch.uint8), exponents.to(torch.uint8))


def _in_blocks(values: torch.Tensor, block: int) -> torch.Tensor:
    """[out, blocks, block]; the last block repeats the row's last element, which changes neither extreme."""
    missing = -values.shape[1] % block
    filled = torch.cat([values, values[:, -1:].expand(-1, missing)], dim=1)
    return filled.view(values.shape[0], -1, block)


def _in_rows(blocks: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return blocks.flatten(1)[:, : values.shape[1]].contiguous()
