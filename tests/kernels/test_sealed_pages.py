"""Sealed pages: their codes by hand, their bytes in every implementation, and which form of a page a row reads."""

from typing import Any

import pytest
import torch

from kvroll_core.precision.sealing import SEALED_FORMATS, sealed_pages
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.reference.sealed_pages import pack, quantise_groups, seal, unpack, unseal
from kvroll_kernels.reference.tensors import array_of, tensor_of
from kvroll_kernels.tolerances import Tolerance
from tests.kernels.tensor_ops import TensorOps

Case = Any
FORMATS = sorted(SEALED_FORMATS)
each_format = pytest.mark.parametrize("kv_format", FORMATS)


def odd_values(head_dim: int) -> torch.Tensor:
    """[2, 2, 3, 32, d] with all that rounding and saturation may trip over, in K's channels and V's groups."""
    values = torch.randn(2, 2, 3, 32, head_dim)
    values[0, :, 0] = 0
    values[0, :, 1, :, 3] = -0.0
    values[0, :, 1, 5] *= 1e-9
    values[0, :, 2, 7] *= 1e6
    values[1, :, 0, 9, 1] = float("nan")
    values[1, :, 1, 11, 2] = float("inf")
    values[1, :, 2, 13, 4] = float("-inf")
    values[1, :, 2, :, 6] = 3.0
    values[1, 0, 0, :, 8] *= 1e-6
    return values


@each_format
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 256])
def test_every_implementation_seals_the_same_bytes(
    native: TensorOps, reference: TensorOps, kv_format: str, head_dim: int
) -> None:
    layout, opened = PageLayout(kv_format, 2, 3, head_dim), PageLayout("bf16", 2, 3, head_dim)
    source = torch.zeros(2, opened.page_bytes, dtype=torch.uint8)
    tensor_of(opened.payload(array_of(source[1]))).copy_(odd_values(head_dim).to(torch.bfloat16))
    found = []
    for ops in (native, reference):
        storage = torch.zeros(3, layout.page_bytes, dtype=torch.uint8)
        pool = ops.kv_pool(storage, kv_format, 2, 3, head_dim, source, 32)
        ops.kivi_seal(pool, ops.buffer(torch.tensor([1])), ops.buffer(torch.tensor([2])), 1)
        assert not storage[:2].any()
        assert torch.equal(storage[2], ops.transcode(source[1], "bf16", kv_format, 2, 3, head_dim))
        found.append(storage[2])
    assert torch.equal(*found)
    back = [ops.transcode(found[0], kv_format, "fp32", 2, 3, head_dim) for ops in (native, reference)]
    assert torch.equal(*back)
    held = tensor_of(PageLayout("fp32", 2, 3, head_dim).payload(array_of(back[0])))
    assert torch.equal(held.nan_to_num(1e9), unseal(layout, array_of(found[0]), slice(None)).nan_to_num(1e9))
    told = held.isnan()  # a channel of K over the page, a token's group of V; `odd_values` says where
    assert told[1, 0].any(dim=1).nonzero().tolist() == [[0, 1], [1, 2], [2, 4]]
    assert told[1, 0].all(dim=1).sum() == 3
    assert told[1, 1].all(dim=-1).nonzero().tolist() == ([[0, 9], [1, 11], [2, 13]] if head_dim <= 32 else [])
    assert told[1, 1].any(dim=-1).nonzero().tolist() == [[0, 9], [1, 11], [2, 13]]
    assert bool(held[0].isfinite().all())


@each_format
def test_what_is_read_back_is_within_half_a_step(kv_format: str) -> None:
    layout = PageLayout(kv_format, 1, 2, 80)
    values = torch.randn(1, 2, 2, 32, 80).to(torch.bfloat16).to(torch.float32)
    page = array_of(torch.zeros(layout.page_bytes, dtype=torch.uint8))
    seal(layout, page, values)
    off = (unseal(layout, page, slice(None)) - values).abs()
    levels = 2**layout.bits - 1
    keys = values[:, 0].amax(dim=-2) - values[:, 0].amin(dim=-2)  # a channel's range over the page
    assert bool((off[:, 0] <= (keys / levels * 0.51 + 1e-3).unsqueeze(-2)).all())
    for group in range(3):
        part = (..., slice(32 * group, 32 * group + 32))
        spread = values[:, 1][part].amax(dim=-1) - values[:, 1][part].amin(dim=-1)  # of a token's group
        assert bool((off[:, 1][part] <= (spread / levels * 0.51 + 1e-3).unsqueeze(-1)).all())


def test_codes_by_hand() -> None:
    codes, scale, zero = quantise_groups(torch.tensor([[-1.0, 0.0, 1.0, 2.0], [5.0] * 4]), 2)
    assert codes.tolist() == [[0, 1, 2, 3], [0, 0, 0, 0]]
    assert (scale.tolist(), zero.tolist()) == ([1.0, 0.0], [-1.0, 5.0])
    assert pack(codes[:1], 2).tolist() == [[0b11100100]]
    assert pack(torch.tensor([3, 12]).to(torch.uint8), 4).tolist() == [0xC3]
    for bits in (2, 4):
        every = torch.arange(2**bits, dtype=torch.uint8)
        assert torch.equal(unpack(pack(every, bits), bits), every.to(torch.float32))


@each_format
@pytest.mark.parametrize("length", [1, 64, 96, 97, 128, 129, 600])
@pytest.mark.fast_where(any_ops="avx2")
@pytest.mark.fast_where(kv_format="kivi4", length=(64, 97))
def test_a_row_reads_each_page_in_the_form_that_its_position_says(
    any_ops: TensorOps, attention_case: Case, kv_format: str, length: int
) -> None:
    """Garbage in every page of the other form changes nothing; in one of the right form it does."""
    case = attention_case.make(kv_format, 64, 2, 600)
    case.write(any_ops)
    query = torch.randn(1, case.q_width)
    before = case.attend(any_ops, query, [length])
    border, pages = sealed_pages(length - 1, case.residual_tokens), -(-length // 32)
    case.storage[case.table[0, border:]] = 0x55
    case.open_storage[case.open_table[0, :border]] = 0x55
    assert torch.equal(case.attend(any_ops, query, [length]), before)
    if border:
        case.storage[case.table[0, border - 1]] = 0x11
        assert not torch.equal(case.attend(any_ops, query, [length]), before)
    else:
        case.open_storage[case.open_table[0, pages - 1]] = 0x11
        assert not torch.equal(case.attend(any_ops, query, [length]), before)


@each_format
def test_the_oracle_reads_what_torch_makes_of_the_dequantised_pages(
    reference: TensorOps, attention_case: Case, kv_format: str
) -> None:
    case = attention_case.make(kv_format, 64, 1, 320, kv_heads=2)
    case.write(reference)
    query = torch.randn(1, case.q_width)
    kv = case.values[:, case.q_width :].to(torch.bfloat16).to(torch.float32).view(320, 2, 2, 64).permute(1, 2, 0, 3)
    border = sealed_pages(319, case.residual_tokens) * 32
    assert 0 < border < 320
    kv = kv.clone()
    for first in range(0, border, 32):
        page = array_of(torch.zeros(PageLayout(kv_format, 1, 2, 64).page_bytes, dtype=torch.uint8))
        seal(PageLayout(kv_format, 1, 2, 64), page, kv[None, :, :, first : first + 32])
        kv[:, :, first : first + 32] = unseal(PageLayout(kv_format, 1, 2, 64), page, slice(None))[0]
    expected = torch.nn.functional.scaled_dot_product_attention(query.view(2, 1, 64), kv[0], kv[1])
    found = case.attend(reference, query, [320])
    Tolerance(1e-5, 1e-5).check(found, expected.reshape(1, -1))


def test_pools_and_calls_that_do_not_fit_are_refused(any_ops: TensorOps, attention_case: Case) -> None:
    layout, opened = PageLayout("kivi4", 1, 1, 16), PageLayout("bf16", 1, 1, 16)
    storage, beside = (torch.zeros(2, part.page_bytes, dtype=torch.uint8) for part in (layout, opened))
    with pytest.raises(ValueError, match="needs storage for its open bf16 pages"):
        any_ops.kv_pool(storage, "kivi4", 1, 1, 16)
    with pytest.raises(ValueError, match="multiple of 32"):
        any_ops.kv_pool(storage, "kivi4", 1, 1, 16, beside, 33)
    with pytest.raises(ValueError, match="no open pages"):
        any_ops.kv_pool(beside, "bf16", 1, 1, 16, beside, 32)
    plain = any_ops.kv_pool(beside, "bf16", 1, 1, 16)
    pool = any_ops.kv_pool(storage, "kivi4", 1, 1, 16, beside, 32)
    one, far = (any_ops.buffer(torch.tensor([page])) for page in (1, 2))
    with pytest.raises(ValueError, match="not sealed"):
        any_ops.kivi_seal(plain, one, one, 1)
    for ids in ((far, one), (one, far)):
        with pytest.raises(ValueError, match="page id"):
            any_ops.kivi_seal(pool, *ids, 1)
    case = attention_case.make("kivi2", 16, 1, 200)
    case.write(any_ops)
    case.open_table[0, -1] = 99
    with pytest.raises(ValueError, match="page id"):
        case.attend(any_ops, torch.randn(1, case.q_width), [200])
    case.open_table = None
    with pytest.raises(ValueError, match="open table"):
        case.attend(any_ops, torch.randn(1, case.q_width), [200])
