"""From a bf16 matrix to the stored form of a weight dtype (layouts: `kvroll_core.formats`)."""

import torch

from kvroll_core.formats import weight_format


def quantise(weight: torch.Tensor, dtype: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`weight` [out, in] bf16 as (stored [out, in], fp32 scale [out] or None).

    int8 is symmetric and per output channel: scale = absmax / 127, stored = round-half-even(value / scale).

    Raises:
        FormatNotBuiltError, UnknownFormatError: a dtype that this version cannot run.
    """
    if weight_format(dtype).name == "bf16":
        return weight.contiguous(), None
    values = weight.float()
    scale = values.abs().amax(dim=1).clamp(min=1e-12) / 127
    stored = torch.round(values / scale[:, None]).clamp(-127, 127).to(torch.int8)
    return stored.contiguous(), scale.contiguous()
