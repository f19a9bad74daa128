"""A stored weight as the numbers that it stands for, in fp64."""

import torch

from kvroll_kernels.arrays import Array
from kvroll_kernels.page_layout import MX_BLOCK
from kvroll_kernels.reference.kv_vectors import float_of_e8m0
from kvroll_kernels.reference.tensors import tensor_of
from kvroll_kernels.weight_layout import weight_form

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of the codes 0 to 7; bit 3 is the sign (OCP MX v1.0 §5.3.3)."""


def dequantise(stored: Array, stored_scale: Array | None, stored_zero: Array | None) -> torch.Tensor:
    """The weight [out, in] in fp64 (stored forms: `weight_form`).

    Raises:
        ValueError: the parts belong to no dtype.
    """
    form = weight_form(stored, stored_scale, stored_zero)
    weight, scale, zero = (None if part is None else tensor_of(part) for part in (stored, stored_scale, stored_zero))
    assert weight is not None
    if scale is None:
        return weight.to(torch.float64)
    if form.kind == "mxfp4":
        table = torch.tensor([*E2M1, *(-value for value in E2M1)], dtype=torch.float64)
        return table[weight.long()] * _spread(float_of_e8m0(scale), MX_BLOCK, weight)
    if zero is not None:
        return weight.to(torch.float64) * _spread(scale, form.block, weight) + _spread(zero, form.block, weight)
    return weight.to(torch.float64) * scale.to(torch.float64).unsqueeze(1)


def _spread(parts: torch.Tensor, block: int, weight: torch.Tensor) -> torch.Tensor:
    """[out, blocks] as fp64 [out, in]."""
    return parts.to(torch.float64).repeat_interleave(block, dim=1)[:, : weight.shape[1]]
