"""How a whole page is sealed and read back: asymmetric codes, K per channel over the page, V per token in groups of 32 channels.

KIVI (arXiv 2402.02750, section 3.2): code = round((x - min) / scale), scale = (max - min) / (2^bits - 1), value = code * scale + min.
"""

import math

import torch

from kvroll_kernels.arrays import Array
from kvroll_kernels.page_layout import MX_BLOCK, PageLayout
from kvroll_kernels.reference.kv_vectors import FP16_MAX, fetch, saturate, store
from kvroll_kernels.reference.tensors import tensor_of

_EVERYTHING = (slice(None),) * 4
Quantised = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def quantise_groups(values: torch.Tensor, bits: int) -> Quantised:
    """Codes [..., n], scale and zero [...] of fp32 groups [..., n], saturated to fp16's range.

    Codes are of the scale and zero as stored, rounded to fp16; a group without a scale has codes of 0, and so has one with NaN or
    infinity in it, whose scale and zero are NaN. All in fp32 with true divisions and half-to-even, so every implementation can give the
    same bytes.
    """
    levels = float(2**bits - 1)
    finite = saturate(values, FP16_MAX) + 0.0  # -0 becomes +0: which of the two is the minimum is nobody's to choose
    numbers = values.isfinite().all(dim=-1)
    nan = torch.full_like(finite[..., 0], math.nan)
    low, high = (torch.where(numbers, end, nan) for end in (finite.amin(dim=-1), finite.amax(dim=-1)))
    zero, scale = low.to(torch.float16), ((high - low) / levels).to(torch.float16)
    step = scale.to(torch.float32).unsqueeze(-1)
    level = torch.where(step > 0, (finite - zero.to(torch.float32).unsqueeze(-1)) / step, torch.zeros_like(finite))
    return torch.round(level.clamp(0.0, levels)).to(torch.uint8), scale, zero


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes [..., d] as bytes [..., d * bits / 8], the first code in the low bits."""
    each = 8 // bits
    parts = codes.reshape(*codes.shape[:-1], -1, each).to(torch.int32)
    return sum((parts[..., i] << (bits * i) for i in range(1, each)), parts[..., 0]).to(torch.uint8)


def unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Bytes [..., d * bits / 8] as fp32 codes [..., d]."""
    parts = [(packed >> (bits * i)) & (2**bits - 1) for i in range(8 // bits)]
    return torch.stack(parts, dim=-1).flatten(-2).to(torch.float32)


def seal(layout: PageLayout, page: Array, values: torch.Tensor) -> None:
    """Writes the fp32 values [layers, 2, kv_heads, 32, d] of a whole page, rounded to bf16 first: pages are sealed from open ones."""
    keys, tokens = values.to(torch.bfloat16).to(torch.float32).unbind(dim=1)
    payload = tensor_of(layout.payload(page))
    key_scales, value_scales = (tensor_of(part) for part in layout.sealed_scales(page))
    codes, scale, zero = quantise_groups(keys.transpose(-1, -2), layout.bits)
    payload[:, 0] = pack(codes.transpose(-1, -2), layout.bits)
    key_scales[:, :, 0], key_scales[:, :, 1] = scale, zero
    parts = []
    for group in range(layout.groups):
        part = tokens[..., group * MX_BLOCK : (group + 1) * MX_BLOCK]
        codes, scale, zero = quantise_groups(part, layout.bits)
        parts.append(codes)
        value_scales[..., group, 0], value_scales[..., group, 1] = scale, zero
    payload[:, 1] = pack(torch.cat(parts, dim=-1), layout.bits)


def unseal(layout: PageLayout, page: Array, layers: slice) -> torch.Tensor:
    """The fp32 values [layers, 2, kv_heads, 32, d] of those layers of a sealed page."""
    codes = unpack(tensor_of(layout.payload(page))[layers], layout.bits)
    key_scales, value_scales = (tensor_of(part)[layers].to(torch.float32) for part in layout.sealed_scales(page))
    keys = codes[:, 0] * key_scales[:, :, 0].unsqueeze(-2) + key_scales[:, :, 1].unsqueeze(-2)
    spread = value_scales.repeat_interleave(MX_BLOCK, dim=-2)[..., : layout.head_dim, :]
    values = codes[:, 1] * spread[..., 0] + spread[..., 1]
    return torch.stack([keys, values], dim=1)


def store_page(layout: PageLayout, page: Array, values: torch.Tensor) -> None:
    """Writes a whole page of any format from fp32 values [layers, 2, kv_heads, 32, d]."""
    if layout.is_sealed:
        seal(layout, page, values)
    else:
        store(layout, page, _EVERYTHING, values)


def fetch_page(layout: PageLayout, page: Array) -> torch.Tensor:
    """The fp32 values [layers, 2, kv_heads, 32, d] of a whole page of any format."""
    return unseal(layout, page, slice(None)) if layout.is_sealed else fetch(layout, page, _EVERYTHING)
