"""Pages whose layers differ in format: each layer is, bit for bit, what a pool of its format alone would hold."""

import numpy as np
import pytest
import torch

from kvroll_core.precision.kv_form import KvForm
from kvroll_kernels.arrays import FP32, UINT8, Array, zeros
from kvroll_kernels.calls import AttentionCall, KvWriteCall
from kvroll_kernels.ops import Ops
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.page_map import PageMap, page_in_form
from kvroll_worker.kv.mixed_storage import MixedStorage
from kvroll_worker.kv.storage import PageStorage
from tests.kernels.tensor_ops import TensorOps

LAYERS, HEADS, DIM, PAGES, TOKENS = 5, 2, 48, 3, 50
SIZES = (LAYERS, HEADS, DIM)
FORMS = ["int8/bf16:0,4", "fp8_e4m3/bf16:2", "mxfp8/bf16:1,3", "fp32/bf16:0", "int8/bf16:0,1,2,3,4"]


def bare(ops: TensorOps) -> Ops:
    found: Ops = ops._ops
    return found


def vectors() -> Array:
    return np.random.default_rng(5).standard_normal((LAYERS, TOKENS, 2 * HEADS * DIM), dtype=np.float32)


def filled(ops: Ops, storage: PageStorage | MixedStorage) -> PageStorage | MixedStorage:
    """50 tokens in pages 1 and 2."""
    values = vectors()
    pages = ops.buffer(np.array([1 + t // 32 for t in range(TOKENS)], dtype=np.int64))
    slots = ops.buffer(np.array([t % 32 for t in range(TOKENS)], dtype=np.int32))
    for layer in range(LAYERS):
        pool, place = storage.pool_of(layer)
        qkv = ops.buffer(values[layer])
        ops.kv_write(KvWriteCall(pool, place, qkv, 2 * HEADS * DIM, 0, HEADS * DIM, pages, slots), TOKENS)
    return storage


def attend(ops: Ops, storage: PageStorage | MixedStorage, layer: int) -> Array:
    q, out = np.random.default_rng(6).standard_normal((1, 4 * DIM), dtype=np.float32), zeros((1, 4 * DIM), FP32)
    table = ops.buffer(np.array([[1, 2]], dtype=np.int64))
    row, length = ops.buffer(np.zeros(1, np.int32)), ops.buffer(np.full(1, TOKENS, np.int32))
    pool, place = storage.pool_of(layer)
    rows = (ops.buffer(q), 4 * DIM, ops.buffer(out), 4)
    ops.paged_attention(AttentionCall(pool, place, *rows, table, 2, row, length, DIM**-0.5), 1)
    return out


def mixed(ops: Ops, word: str) -> MixedStorage:
    return MixedStorage(ops, PageMap(KvForm.parse(word), *SIZES), PAGES)


def plain(ops: Ops, name: str) -> PageStorage:
    return PageStorage(ops, PageLayout(name, *SIZES), PAGES)


@pytest.mark.parametrize("word", FORMS)
@pytest.mark.fast_where(any_ops="avx2")
def test_attention_reads_each_layer_as_a_pool_of_its_format(any_ops: TensorOps, word: str) -> None:
    ops, form = bare(any_ops), KvForm.parse(word)
    storage = filled(ops, mixed(ops, word))
    alone = {name: filled(ops, plain(ops, name)) for name in ("bf16", form.kv_format)}
    for layer in range(LAYERS):
        expected = alone["bf16" if layer in form.skip_layers else form.kv_format]
        assert attend(ops, storage, layer).tobytes() == attend(ops, expected, layer).tobytes()


@pytest.mark.parametrize("target", [*FORMS, "bf16", "int8", "fp8_e4m3"])
@pytest.mark.parametrize("source", [*FORMS, "bf16", "int8"])
def test_a_page_changes_layer_by_layer_as_the_kernels_transcode(native: TensorOps, source: str, target: str) -> None:
    ops = bare(native)
    is_mixed = KvForm.parse(source).skip_layers
    storage = filled(ops, mixed(ops, source) if is_mixed else plain(ops, source))
    for page, valid in ((1, 32), (2, TOKENS - 32)):
        found = np.frombuffer(storage.read(page, valid, target), dtype=UINT8)
        here, there = (PageMap(KvForm.parse(word), *SIZES) for word in (source, target))
        assert len(found) == there.page_bytes
        for layer in range(LAYERS):
            one = layer_of(here, np.frombuffer(storage.read(page, valid, source), dtype=UINT8), layer)
            expected = ops.transcode(one, name_of(here, layer), name_of(there, layer), 1, HEADS, DIM)
            again = PageMap(KvForm(name_of(there, layer)), 1, HEADS, DIM)
            # What the format makes of the zeros in unwritten slots is cleared, scales too.
            expected = page_in_form(ops, expected, again, again, valid)
            assert layer_of(there, found, layer).tobytes() == expected.tobytes(), layer


def name_of(page_map: PageMap, layer: int) -> str:
    return page_map.parts[page_map.places[layer][0]].layout.kv_format


def layer_of(page_map: PageMap, page: Array, layer: int) -> Array:
    """One layer's bytes as a page of its own, cut out by hand: payload, then scales."""
    at, place = page_map.places[layer]
    part = page_map.parts[at]
    one = PageLayout(part.layout.kv_format, 1, HEADS, DIM)
    mine = part.of(page)
    payload = part.layout.payload_bytes // part.layout.layers
    rest = {"fp8_e4m3": 4, "int8": 4, "mxfp8": 2}.get(one.kv_format, 0) * 2 * HEADS * 32
    body = mine[place * payload : (place + 1) * payload]
    scales = mine[part.layout.payload_bytes + place * rest :][:rest]
    whole = np.concatenate([body, scales])
    return np.pad(whole, (0, one.page_bytes - len(whole)))


def test_a_page_lands_as_it_was_read(native: TensorOps) -> None:
    ops = bare(native)
    source, target = filled(ops, mixed(ops, FORMS[0])), mixed(ops, FORMS[0])
    for page in (1, 2):
        target.write(page, source.read(page, 32 if page == 1 else TOKENS - 32, FORMS[0]))
    assert all(attend(ops, source, n).tobytes() == attend(ops, target, n).tobytes() for n in range(LAYERS))
    target.copy(1, 0)
    assert target.read_raw(0) == target.read_raw(1) == source.read_raw(1)
    with pytest.raises(ValueError, match=f"expected a int8/bf16:0,4 page of {target.page_bytes} bytes, found 3"):
        target.write(1, b"abc")


def test_pages_of_the_last_part_stay_inside_the_storage(native: TensorOps) -> None:
    """The pools of a mixed storage overlap by a page; the last page's last part ends with the storage."""
    ops = bare(native)
    storage = mixed(ops, FORMS[0])
    values = torch.ones(LAYERS, 2 * HEADS * DIM).numpy()
    last = ops.buffer(np.array([PAGES - 1], dtype=np.int64))
    slot = ops.buffer(np.array([31], dtype=np.int32))
    before = storage.read_raw(0), storage.read_raw(1)
    for layer in range(LAYERS):
        pool, place = storage.pool_of(layer)
        qkv = ops.buffer(values[layer : layer + 1])
        ops.kv_write(KvWriteCall(pool, place, qkv, 2 * HEADS * DIM, 0, HEADS * DIM, last, slot), 1)
    assert (storage.read_raw(0), storage.read_raw(1)) == before
    page = np.frombuffer(storage.read_raw(PAGES - 1), dtype=UINT8)
    for part in storage.page_map.parts:
        assert np.count_nonzero(part.layout.payload(part.of(page))[:, :, :, 31]) == len(part.layers) * 2 * HEADS * DIM
