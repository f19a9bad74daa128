"""How one head vector of K or V is stored and read back in each KV format."""

import torch

from kvroll_kernels.page_layout import PageLayout

INT8_MAX = 127.0
MIN_ABSMAX = 1e-6


def quantise_int8(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 payload and fp32 scale of vectors [..., d]: scale = max(absmax, 1e-6)/127, round half to even.

    All in fp32 with true divisions, so every implementation can give the same bytes.
    """
    scale = values.abs().amax(dim=-1).clamp_min(MIN_ABSMAX) / torch.tensor(INT8_MAX)
    payload = torch.round(values / scale.unsqueeze(-1)).clamp(-INT8_MAX, INT8_MAX)
    return payload.to(torch.int8), scale


def store(layout: PageLayout, page: torch.Tensor, index: tuple[slice | int, ...], values: torch.Tensor) -> None:
    """Writes fp32 vectors [..., d] at `index` of [layers, 2, kv_heads, 32] of a page."""
    if layout.has_scales:
        payload, scale = quantise_int8(values)
        layout.scales(page)[index] = scale
        layout.payload(page)[index] = payload
    else:
        layout.payload(page)[index] = values.to(layout.payload_dtype)


def fetch(layout: PageLayout, page: torch.Tensor, index: tuple[slice | int, ...]) -> torch.Tensor:
    """The fp32 values of the vectors at `index` of [layers, 2, kv_heads, 32] of a page."""
    values = layout.payload(page)[index].to(torch.float32)
    return values * layout.scales(page)[index].unsqueeze(-1) if layout.has_scales else values
