from collections.abc import Callable
from typing import Any

import pytest
import torch

from kvroll_core.precision.formats import KV_FORMATS, UnknownFormatError
from kvroll_kernels.calls import KvWriteCall
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.reference.sealed_pages import fetch_page
from kvroll_kernels.reference.tensors import array_of, tensor_of
from tests.kernels.tensor_ops import TensorOps

Case = Any
FORMATS = [name for name, entry in KV_FORMATS.items() if entry.built]


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 256])
@pytest.mark.fast_where(native="avx2")
@pytest.mark.fast_where(head_dim=64)
def test_kv_write_stores_the_oracles_bytes(
    native: TensorOps, reference: TensorOps, attention_case: Case, kv_format: str, head_dim: int
) -> None:
    case = attention_case.make(kv_format, head_dim, 1, 75)
    case.values[3] = 0
    case.values[4] *= 1e6
    case.values[5] *= 1e-9
    stored = []
    for ops in (native, reference):
        storages = [case.storage, *([] if case.open_storage is None else [case.open_storage])]
        for storage in storages:
            storage.fill_(0xFF)
        case.write(ops)
        stored.append([storage.clone() for storage in storages])
    assert all(torch.equal(*pair) for pair in zip(*stored, strict=True))


def test_int8_by_hand(any_ops: TensorOps) -> None:
    """absmax 127 makes the scale 1, so the payload is the value rounded half to even."""
    layout = PageLayout("int8", 1, 1, 16)
    storage = torch.zeros(1, layout.page_bytes, dtype=torch.uint8)
    row = torch.tensor([[127.0, -127.0, 0.5, 1.5, -0.5, -2.5, 3.4, 0.0] + [0.0] * 8 + [0.0] * 16])
    pool = any_ops.kv_pool(storage, "int8", 1, 1, 16)
    ids = any_ops.buffer(torch.tensor([0])), any_ops.buffer(torch.tensor([9], dtype=torch.int32))
    any_ops.kv_write(KvWriteCall(pool, 0, any_ops.buffer(row), 32, 0, 16, *ids), 1)
    assert tensor_of(layout.payload(array_of(storage[0])))[0, 0, 0, 9, :8].tolist() == [127, -127, 0, 2, 0, -2, 3, 0]
    assert tensor_of(layout.scales(array_of(storage[0])))[0, :, 0, 9].tolist() == [1.0, pytest.approx(1e-6 / 127)]


@pytest.mark.parametrize("target_format", FORMATS)
@pytest.mark.parametrize("source_format", FORMATS)
@pytest.mark.parametrize(("heads", "head_dim"), [(1, 64), pytest.param(2, 80, marks=pytest.mark.slow)])
@pytest.mark.fast_where(any_ops="avx2")
@pytest.mark.fast_where(any_ops="plain", source_format="bf16")
@pytest.mark.fast_where(any_ops="reference", source_format="bf16", target_format=("int8", "kivi4"))
def test_transcoding_equals_writing_what_the_source_holds(
    any_ops: TensorOps, source_format: str, target_format: str, heads: int, head_dim: int
) -> None:
    sizes = (2, heads, head_dim)
    page = written_page(any_ops, source_format, sizes, torch.randn(32, 2 * heads * head_dim))
    held = fetch_page(PageLayout(source_format, *sizes), array_of(page))
    assert torch.equal(held[0], held[1])  # both layers were given the same rows
    rows = held[0].permute(2, 0, 1, 3).reshape(32, -1).contiguous()
    found = any_ops.transcode(page, source_format, target_format, *sizes)
    if source_format == target_format:
        assert torch.equal(found, page)
        assert found.data_ptr() != page.data_ptr()
    else:
        assert torch.equal(found, written_page(any_ops, target_format, sizes, rows))


def written_page(ops: TensorOps, kv_format: str, sizes: tuple[int, int, int], rows: torch.Tensor) -> torch.Tensor:
    """A page whose 32 tokens hold `rows` [32, K then V of all heads], the same in every layer."""
    layout = PageLayout(kv_format, *sizes)
    storage = torch.zeros(1, layout.page_bytes, dtype=torch.uint8)
    beside = torch.zeros(1, PageLayout("bf16", *sizes).page_bytes, dtype=torch.uint8)
    pool = ops.kv_pool(storage, kv_format, *sizes, *((beside, 32) if layout.is_sealed else ()))
    page, slots = ops.buffer(torch.zeros(32, dtype=torch.int64)), ops.buffer(torch.arange(32, dtype=torch.int32))
    stride = rows.shape[1]
    for layer in range(layout.layers):
        ops.kv_write(KvWriteCall(pool, layer, ops.buffer(rows), stride, 0, stride // 2, page, slots), 32)
    if layout.is_sealed:
        ops.kivi_seal(pool, page, page, 1)
    return storage[0]


def bad_calls() -> list[tuple[str, Callable[[TensorOps, Any], None]]]:
    def write(ops: TensorOps, pool: Any, page: int, slot: int) -> None:
        ids = ops.buffer(torch.tensor([page])), ops.buffer(torch.tensor([slot], dtype=torch.int32))
        ops.kv_write(KvWriteCall(pool, 0, ops.buffer(torch.zeros(1, 32)), 32, 0, 16, *ids), 1)

    return [
        ("page id", lambda ops, pool: write(ops, pool, 2, 0)),
        ("page id", lambda ops, pool: write(ops, pool, -1, 0)),
        ("slot", lambda ops, pool: write(ops, pool, 0, 32)),
        ("slot", lambda ops, pool: write(ops, pool, 0, -1)),
    ]


@pytest.mark.parametrize(("what", "call"), bad_calls())
def test_indices_out_of_range_are_refused_before_any_write(
    any_ops: TensorOps, what: str, call: Callable[[TensorOps, Any], None]
) -> None:
    layout = PageLayout("bf16", 1, 1, 16)
    storage = torch.full((2, layout.page_bytes), 0x55, dtype=torch.uint8)
    with pytest.raises(ValueError, match=what):
        call(any_ops, any_ops.kv_pool(storage, "bf16", 1, 1, 16))
    assert bool((storage == 0x55).all())


def test_pools_that_cannot_be_are_refused(any_ops: TensorOps) -> None:
    small = torch.zeros(2, 100, dtype=torch.uint8)
    with pytest.raises(ValueError, match="page storage"):
        any_ops.kv_pool(small, "bf16", 1, 1, 16)
    with pytest.raises(ValueError, match="multiple of 16"):
        any_ops.kv_pool(torch.zeros(2, 4096, dtype=torch.uint8), "bf16", 1, 1, 24)
    with pytest.raises(UnknownFormatError):
        any_ops.kv_pool(torch.zeros(2, 4096, dtype=torch.uint8), "kivi3", 1, 1, 16)
