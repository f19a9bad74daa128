"""Why `core.compat` converts some changes at equal bits and replays their opposites: how far converted pages are off."""

from itertools import permutations

import pytest
import torch

from kvroll_core.compat import LEVEL_CONVERSIONS
from kvroll_core.precision.formats import KV_FORMATS
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.reference.sealed_pages import fetch_page, store_page
from kvroll_kernels.reference.tensors import array_of
from tests.kernels.tensor_ops import TensorOps

HEADS, DIM = 8, 64
BUILT = [name for name, entry in KV_FORMATS.items() if entry.built]
LEVEL = [(a, b) for a, b in permutations(BUILT, 2) if KV_FORMATS[a].payload_bits == KV_FORMATS[b].payload_bits]


def page_of(kv_format: str, values: torch.Tensor) -> torch.Tensor:
    layout = PageLayout(kv_format, 1, HEADS, DIM)
    page = torch.zeros(layout.page_bytes, dtype=torch.uint8)
    store_page(layout, array_of(page), values)
    return page


def rms_error(kv_format: str, page: torch.Tensor, values: torch.Tensor) -> float:
    held = fetch_page(PageLayout(kv_format, 1, HEADS, DIM), array_of(page))
    return float((held - values).square().mean().sqrt())


def error_ratio(ops: TensorOps, source: str, target: str) -> float:
    """The error of pages that went from source to target, over that of pages written in target."""
    values = torch.randn(1, 2, HEADS, 32, DIM) * torch.logspace(-2, 2, DIM)[torch.randperm(DIM)] ** 0.5
    converted = ops.transcode(page_of(source, values), source, target, 1, HEADS, DIM)
    return rms_error(target, converted, values) / rms_error(target, page_of(target, values), values)


@pytest.mark.parametrize(("source", "target"), LEVEL)
def test_a_level_change_converts_exactly_where_it_costs_under_a_tenth(
    reference: TensorOps, source: str, target: str
) -> None:
    ratio = error_ratio(reference, source, target)
    if (source, target) in LEVEL_CONVERSIONS:
        assert ratio < 1.1
    else:
        assert ratio > 1.2


@pytest.mark.parametrize(
    ("source", "target"),
    [(a, b) for a, b in permutations(BUILT, 2) if KV_FORMATS[a].payload_bits > KV_FORMATS[b].payload_bits],
)
def test_going_down_costs_under_a_tenth(reference: TensorOps, source: str, target: str) -> None:
    assert error_ratio(reference, source, target) < 1.1
