"""Which weight dtype a stored weight is, from the dtypes of its parts: one answer for every implementation."""

from kvroll_core.precision.formats import WEIGHT_FORMATS
from kvroll_kernels.arrays import BF16, E4M3, FP16, FP32, INT8, UINT8, Array
from kvroll_kernels.page_layout import MX_BLOCK
from kvroll_kernels.weight_form import WeightForm

INT4_BLOCKS = WEIGHT_FORMATS["int4"].block_sizes
"""How many inputs may share one scale and zero of int4."""

_PLAIN = {FP32: "fp32", BF16: "bf16", FP16: "fp16"}
_CHANNEL = {E4M3: "fp8_e4m3", INT8: "int8"}


def weight_form(weight: Array, scale: Array | None, zero: Array | None) -> WeightForm:
    """The form of a weight [out, in], told by its parts.

    fp32, bf16, fp16: no scale. fp8_e4m3, int8: fp32 scale [out]. int4: codes 0..15 in uint8, fp16 scale and zero
    [out, ceil(in / block)], block one of `INT4_BLOCKS`. mxfp4: E2M1 codes in uint8, E8M0 scale uint8 [out, ceil(in / 32)].
    Two blocks with as many scales have one scale a row, and then are the same.

    Raises:
        ValueError: the parts belong to no dtype.
    """
    outputs, inputs = weight.shape
    if weight.dtype in _PLAIN and scale is None and zero is None:
        return WeightForm(_PLAIN[weight.dtype])
    if weight.dtype in _CHANNEL and scale is not None and zero is None and scale.size == outputs:
        return WeightForm(_CHANNEL[weight.dtype])
    if weight.dtype == UINT8 and scale is not None:
        if zero is None and scale.dtype == UINT8 and scale.shape == (outputs, -(-inputs // MX_BLOCK)):
            return WeightForm("mxfp4", MX_BLOCK)
        if zero is not None and scale.dtype == zero.dtype == FP16 and scale.shape == zero.shape:
            for block in INT4_BLOCKS:
                if scale.shape == (outputs, -(-inputs // block)):
                    return WeightForm("int4", block)
    parts = [None if part is None else f"{part.dtype.name} {list(part.shape)}" for part in (weight, scale, zero)]
    raise ValueError(
        "a weight is fp32, bf16 or fp16 without a scale, fp8_e4m3 or int8 with one a channel, or uint8 codes with int4's"
        f" or mxfp4's block scales; found weight {parts[0]}, scale {parts[1]}, zero {parts[2]}"
    )


def check_rows_of(form: WeightForm, inputs: int, weight: Array, scale: Array | None, zero: Array | None) -> None:
    """Refuses rows that are none of a weight of that form and width.

    Raises:
        ValueError: another dtype, width or block size.
    """
    found = weight_form(weight, scale, zero)
    same = found.kind == form.kind and weight.shape[1] == inputs
    if same and form.block and scale is not None:
        same = scale.shape[1] == -(-inputs // form.block)
    if not same:
        raise ValueError(
            f"expected rows of {inputs} inputs in {form.kind}, blocks of {form.block},"
            f" found {weight.shape[1]} in {found.kind}, blocks of {found.block}"
        )
