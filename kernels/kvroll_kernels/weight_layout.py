"""Which weight dtype a stored weight is, from the dtypes of its parts: one answer for every implementation."""

from kvroll_core.budget import WEIGHT_BLOCK
from kvroll_kernels.arrays import BF16, E4M3, FP16, FP32, INT8, UINT8, Array
from kvroll_kernels.page_layout import MX_BLOCK

INT4_BLOCK = WEIGHT_BLOCK
"""Inputs that share one scale and zero of int4."""

_PLAIN = {FP32: "fp32", BF16: "bf16", FP16: "fp16"}
_CHANNEL = {E4M3: "fp8_e4m3", INT8: "int8"}


def weight_kind(weight: Array, scale: Array | None, zero: Array | None) -> str:
    """The dtype word of a weight [out, in].

    fp32, bf16, fp16: no scale. fp8_e4m3, int8: fp32 scale [out]. int4: codes 0..15 in uint8, fp16 scale and zero
    [out, ceil(in / 64)]. mxfp4: E2M1 codes in uint8, E8M0 scale uint8 [out, ceil(in / 32)].

    Raises:
        ValueError: the parts belong to no dtype.
    """
    outputs, inputs = weight.shape
    if weight.dtype in _PLAIN and scale is None and zero is None:
        return _PLAIN[weight.dtype]
    if weight.dtype in _CHANNEL and scale is not None and zero is None and scale.size == outputs:
        return _CHANNEL[weight.dtype]
    if weight.dtype == UINT8 and scale is not None:
        if zero is None and scale.dtype == UINT8 and scale.shape == (outputs, -(-inputs // MX_BLOCK)):
            return "mxfp4"
        both = zero is not None and scale.dtype == zero.dtype == FP16 and scale.shape == zero.shape
        if both and scale.shape == (outputs, -(-inputs // INT4_BLOCK)):
            return "int4"
    parts = [None if part is None else f"{part.dtype.name} {list(part.shape)}" for part in (weight, scale, zero)]
    raise ValueError(
        "a weight is fp32, bf16 or fp16 without a scale, fp8_e4m3 or int8 with one a channel, or uint8 codes with int4's"
        f" or mxfp4's block scales; found weight {parts[0]}, scale {parts[1]}, zero {parts[2]}"
    )
