from collections.abc import Callable
from typing import Any

import pytest
import torch

from kvroll_core.formats import FormatNotBuiltError
from kvroll_kernels.ops import Ops
from kvroll_kernels.page_layout import PageLayout

Case = Any
FORMATS = ["bf16", "int8"]


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128])
def test_kv_write_stores_the_oracles_bytes(
    native: Ops, reference: Ops, attention_case: Case, kv_format: str, head_dim: int
) -> None:
    case = attention_case.make(kv_format, head_dim, 1, 75)
    case.values[3] = 0
    case.values[4] *= 1e6
    case.values[5] *= 1e-9
    stored = []
    for ops in (native, reference):
        case.storage.fill_(0xFF)
        case.write(ops)
        stored.append(case.storage.clone())
    assert torch.equal(stored[0], stored[1])


def test_int8_by_hand(any_ops: Ops) -> None:
    """absmax 127 makes the scale 1, so the payload is the value rounded half to even."""
    layout = PageLayout("int8", 1, 1, 16)
    storage = torch.zeros(1, layout.page_bytes, dtype=torch.uint8)
    row = torch.tensor([[127.0, -127.0, 0.5, 1.5, -0.5, -2.5, 3.4, 0.0] + [0.0] * 8 + [0.0] * 16])
    pool = any_ops.kv_pool(storage, "int8", 1, 1, 16)
    ids = any_ops.buffer(torch.tensor([0])), any_ops.buffer(torch.tensor([9], dtype=torch.int32))
    any_ops.kv_write(pool, 0, any_ops.buffer(row), 1, 32, 0, 16, *ids)
    assert layout.payload(storage[0])[0, 0, 0, 9, :8].tolist() == [127, -127, 0, 2, 0, -2, 3, 0]
    assert layout.scales(storage[0])[0, :, 0, 9].tolist() == [1.0, pytest.approx(1e-6 / 127)]


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 64), (3, 64), (2, 80), (1, 128)])
def test_transcoding_equals_writing_int8(any_ops: Ops, heads: int, head_dim: int) -> None:
    source, target = PageLayout("bf16", 2, heads, head_dim), PageLayout("int8", 2, heads, head_dim)
    values = torch.randn(32, 2 * heads * head_dim).to(torch.bfloat16).to(torch.float32)
    pages = {}
    for layout in (source, target):
        storage = torch.zeros(1, layout.page_bytes, dtype=torch.uint8)
        pool = any_ops.kv_pool(storage, layout.kv_format, 2, heads, head_dim)
        ids = any_ops.buffer(torch.zeros(32, dtype=torch.int64)), any_ops.buffer(torch.arange(32, dtype=torch.int32))
        for layer in range(2):
            stride = values.shape[1]
            any_ops.kv_write(pool, layer, any_ops.buffer(values), 32, stride, 0, stride // 2, *ids)
        pages[layout.kv_format] = storage[0]
    found = any_ops.transcode(pages["bf16"], "bf16", "int8", 2, heads, head_dim)
    assert torch.equal(found, pages["int8"])


def test_transcoding_agrees_with_the_oracle_both_ways(native: Ops, reference: Ops, attention_case: Case) -> None:
    case = attention_case.make("bf16", 64, 1, 32)
    case.storage.zero_()
    case.write(reference)
    page = case.storage[case.table[0, 0]].clone()
    sizes = (2, 2, 64)
    narrow = native.transcode(page, "bf16", "int8", *sizes)
    assert torch.equal(narrow, reference.transcode(page, "bf16", "int8", *sizes))
    assert torch.equal(
        native.transcode(narrow, "int8", "bf16", *sizes), reference.transcode(narrow, "int8", "bf16", *sizes)
    )
    same = native.transcode(page, "bf16", "bf16", *sizes)
    assert torch.equal(same, page)
    assert same.data_ptr() != page.data_ptr()


def bad_calls() -> list[tuple[str, Callable[[Ops, Any], None]]]:
    def write(ops: Ops, pool: Any, page: int, slot: int) -> None:
        ids = ops.buffer(torch.tensor([page])), ops.buffer(torch.tensor([slot], dtype=torch.int32))
        ops.kv_write(pool, 0, ops.buffer(torch.zeros(1, 32)), 1, 32, 0, 16, *ids)

    return [
        ("page id", lambda ops, pool: write(ops, pool, 2, 0)),
        ("page id", lambda ops, pool: write(ops, pool, -1, 0)),
        ("slot", lambda ops, pool: write(ops, pool, 0, 32)),
        ("slot", lambda ops, pool: write(ops, pool, 0, -1)),
    ]


@pytest.mark.parametrize(("what", "call"), bad_calls())
def test_indices_out_of_range_are_refused_before_any_write(
    any_ops: Ops, what: str, call: Callable[[Ops, Any], None]
) -> None:
    layout = PageLayout("bf16", 1, 1, 16)
    storage = torch.full((2, layout.page_bytes), 0x55, dtype=torch.uint8)
    with pytest.raises(ValueError, match=what):
        call(any_ops, any_ops.kv_pool(storage, "bf16", 1, 1, 16))
    assert bool((storage == 0x55).all())


def test_pools_that_cannot_be_are_refused(any_ops: Ops) -> None:
    small = torch.zeros(2, 100, dtype=torch.uint8)
    with pytest.raises(ValueError, match="page storage"):
        any_ops.kv_pool(small, "bf16", 1, 1, 16)
    with pytest.raises(ValueError, match="multiple of 16"):
        any_ops.kv_pool(torch.zeros(2, 4096, dtype=torch.uint8), "bf16", 1, 1, 24)
    with pytest.raises(FormatNotBuiltError):
        any_ops.kv_pool(torch.zeros(2, 4096, dtype=torch.uint8), "kivi2", 1, 1, 16)
