from functools import partial
from typing import Any

import pytest
import torch

from kvroll_core.precision.formats import KV_FORMATS
from kvroll_kernels.calls import AttentionCall, KvWriteCall
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.tolerances import TOLERANCES, Tolerance
from tests.kernels.tensor_ops import TensorOps

Case = Any
slow = partial(pytest.param, marks=pytest.mark.slow)
FORMATS = [name for name, entry in KV_FORMATS.items() if entry.built]
LENGTHS = [1, 31, 32, 33, 255, 256, 257, 600]
# Pages are written by the native kernels, which are quick: test_kv_pages.py and test_sealed_pages.py hold them to the oracle's bytes.


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize(
    ("head_dim", "group"),
    [
        (64, 3),
        (80, 7),
        (128, 8),
        (256, 1),
        *(slow(*pair) for pair in [(64, 1), (80, 2), (96, 4), (96, 1), (128, 3), (256, 5)]),
    ],
)
def test_agrees_with_the_oracle(
    native: TensorOps, reference: TensorOps, attention_case: Case, kv_format: str, head_dim: int, group: int
) -> None:
    case = attention_case.make(kv_format, head_dim, group, 600)
    case.write(native)
    query = torch.randn(len(LENGTHS), case.q_width + 10) * 2
    TOLERANCES["paged_attention"].check(case.attend(native, query, LENGTHS), case.attend(reference, query, LENGTHS))


@pytest.mark.parametrize("kv_format", FORMATS)
def test_windows(native: TensorOps, reference: TensorOps, attention_case: Case, kv_format: str) -> None:
    case = attention_case.make(kv_format, 64, 3, 600)
    case.write(native)
    query = torch.randn(len(LENGTHS), case.q_width)
    for window in (1, 31, 32, 33, 300, 10_000):
        found = case.attend(native, query, LENGTHS, window)
        TOLERANCES["paged_attention"].check(found, case.attend(reference, query, LENGTHS, window))


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("window", [0, 1, 33, 300])
def test_sinks(native: TensorOps, reference: TensorOps, attention_case: Case, kv_format: str, window: int) -> None:
    case = attention_case.make(kv_format, 64, 3, 600)
    case.write(native)
    query, sinks = torch.randn(len(LENGTHS), case.q_width), torch.randn(case.heads) * 4
    found = case.attend(native, query, LENGTHS, window, sinks)
    TOLERANCES["paged_attention"].check(found, case.attend(reference, query, LENGTHS, window, sinks))
    assert (found - case.attend(native, query, LENGTHS, window)).abs().max() > 0.05


def test_the_oracle_has_the_sinks_of_gpt_oss(reference: TensorOps, attention_case: Case) -> None:
    """A column more in the softmax, dropped before the values are weighed."""
    case = attention_case.make("fp32", 64, 3, 40, kv_heads=2)
    case.write(reference)
    query, sinks = torch.randn(1, case.q_width), torch.randn(6)
    kv = case.values[:, case.q_width :].view(40, 2, 2, 64).permute(1, 2, 0, 3)
    k, v = (part.repeat_interleave(3, dim=0) for part in kv)
    scores = torch.cat([(query.view(6, 1, 64) @ k.mT)[:, 0] / 8, sinks[:, None]], dim=1)
    expected = torch.softmax(scores, dim=1)[:, None, :-1] @ v
    found = case.attend(reference, query, [40], sinks=sinks)
    Tolerance(1e-5, 1e-5).check(found, expected.reshape(1, -1))


def test_sinks_far_below_or_above_the_scores(any_ops: TensorOps, attention_case: Case) -> None:
    case = attention_case.make("bf16", 64, 3, 600)
    case.write(any_ops)
    query = torch.randn(2, case.q_width)
    for sink in (-1e30, float("-inf")):  # as if it were not there
        found = case.attend(any_ops, query, [600, 33], sinks=torch.full((case.heads,), sink))
        Tolerance(1e-7, 1e-6).check(found, case.attend(any_ops, query, [600, 33]))
    for sink in (200.0, 1e30):  # takes all the weight
        assert case.attend(any_ops, query, [600, 33], sinks=torch.full((case.heads,), sink)).abs().max() < 1e-30


def test_too_few_sinks_are_refused(any_ops: TensorOps, attention_case: Case) -> None:
    case = attention_case.make("bf16", 16, 2, 40)
    case.write(any_ops)
    with pytest.raises(ValueError, match="elements"):
        case.attend(any_ops, torch.randn(1, case.q_width), [40], sinks=torch.zeros(3))


def test_the_oracle_agrees_with_torch(reference: TensorOps, attention_case: Case) -> None:
    """The reference reads bf16 pages back as torch's own attention over the rounded K and V."""
    case = attention_case.make("bf16", 64, 3, 40, kv_heads=2)
    case.write(reference)
    query = torch.randn(40, case.q_width)
    found = case.attend(reference, query, list(range(1, 41)))
    kv = case.values[:, case.q_width :].to(torch.bfloat16).to(torch.float32).view(40, 2, 2, 64).permute(1, 2, 0, 3)
    k, v = (part.repeat_interleave(3, dim=0) for part in kv)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query.view(40, 6, 64).transpose(0, 1), k, v, is_causal=True
    )
    Tolerance(1e-5, 1e-5).check(found, expected.transpose(0, 1).reshape(40, -1))


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize(("window", "has_sinks"), [(0, False), slow(0, True), slow(33, False), (300, True)])
@pytest.mark.fast_where(any_ops="avx2")
@pytest.mark.fast_where(kv_format=("int8", "kivi4"))
def test_a_row_does_not_depend_on_its_neighbours(
    any_ops: TensorOps, attention_case: Case, kv_format: str, window: int, has_sinks: bool
) -> None:
    case = attention_case.make(kv_format, 64, 3, 600)
    case.write(any_ops)
    query, extra = torch.randn(len(LENGTHS), case.q_width), (window, torch.randn(case.heads) if has_sinks else None)
    together = case.attend(any_ops, query, LENGTHS, *extra)
    alone = [case.attend(any_ops, query[i : i + 1].clone(), [n], *extra) for i, n in enumerate(LENGTHS)]
    assert torch.equal(together, torch.cat(alone))
    order = torch.randperm(len(LENGTHS))
    moved = case.attend(any_ops, query[order].contiguous(), [LENGTHS[i] for i in order], *extra)
    assert torch.equal(moved, together[order])


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.fast_where(any_ops="avx2")
@pytest.mark.fast_where(kv_format="int8")
def test_physical_pages_do_not_matter(any_ops: TensorOps, attention_case: Case, kv_format: str) -> None:
    case = attention_case.make(kv_format, 80, 4, 600)
    case.write(any_ops)
    query = torch.randn(2, case.q_width)
    before = case.attend(any_ops, query, [600, 299])
    order = torch.randperm(case.storage.shape[0])
    case.storage = case.storage[order].contiguous()
    case.table = torch.argsort(order)[case.table]
    assert torch.equal(case.attend(any_ops, query, [600, 299]), before)


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.fast_where(kv_format=("int8", "kivi4"))
def test_threads_do_not_change_a_bit(
    native: TensorOps, native_one_thread: TensorOps, attention_case: Case, kv_format: str
) -> None:
    assert native.build_hash() == native_one_thread.build_hash()
    case = attention_case.make(kv_format, 64, 3, 1500)
    case.write(native)
    lengths = [1500, 7, 1025, *range(400, 440)]
    query, sinks = torch.randn(len(lengths), case.q_width), torch.randn(case.heads)
    for extra in ((0, None), (700, sinks)):
        expected = case.attend(native_one_thread, query, lengths, *extra)
        for _ in range(20):
            assert torch.equal(case.attend(native, query, lengths, *extra), expected)


def test_later_tokens_do_not_matter(any_ops: TensorOps, attention_case: Case) -> None:
    case = attention_case.make("int8", 64, 3, 300)
    case.write(any_ops)
    query = torch.randn(1, case.q_width)
    before = case.attend(any_ops, query, [290])
    case.values[290:] = 1e9
    case.write(any_ops)
    assert torch.equal(case.attend(any_ops, query, [290]), before)


def test_large_scores_do_not_overflow(native: TensorOps, reference: TensorOps, attention_case: Case) -> None:
    case = attention_case.make("bf16", 64, 3, 600)
    case.write(reference)
    query = torch.randn(3, case.q_width) * 300
    found, expected = (case.attend(ops, query, [600, 257, 33]) for ops in (native, reference))
    assert bool(found.isfinite().all())
    Tolerance(1e-3, 1e-3).check(found, expected)  # scores in the hundreds: fp32 leaves 2e-5 each


@pytest.mark.parametrize(("lengths", "what"), [([0], "row length"), ([-5], "row length"), ([41], "page id")])
def test_bad_lengths_and_pages_are_refused(
    any_ops: TensorOps, attention_case: Case, lengths: list[int], what: str
) -> None:
    case = attention_case.make("bf16", 16, 1, 40)
    case.write(any_ops)
    case.table = torch.cat([case.table, torch.tensor([[99]])], dim=1)
    if what == "page id":
        lengths = [65]
    with pytest.raises(ValueError, match=what):
        case.attend(any_ops, torch.randn(1, case.q_width), lengths)


def test_pages_beyond_two_gib(native: TensorOps, reference: TensorOps) -> None:
    """Offsets are int64: the last page of a sparse pool lies far beyond 2^31 bytes."""
    layout = PageLayout("bf16", 1, 1, 16)
    # The page stride is made large instead of the pool long, so that few pages are ever touched.
    storage = torch.empty((7, 512 << 20), dtype=torch.uint8)
    values = torch.randn(1, 48)
    outputs = []
    for ops in (native, reference):
        pool = ops.kv_pool(storage, "bf16", 1, 1, layout.head_dim)
        one = ops.buffer(torch.zeros(1, dtype=torch.int32))
        last = torch.tensor([[6]])
        ops.kv_write(KvWriteCall(pool, 0, ops.buffer(values), 48, 16, 32, ops.buffer(last), one), 1)
        out = torch.empty(1, 16)
        length = ops.buffer(torch.ones(1, dtype=torch.int32))
        rows = (ops.buffer(values), 48, ops.buffer(out), 1)
        ops.paged_attention(AttentionCall(pool, 0, *rows, ops.buffer(last), 1, one, length, 0.25), 1)
        outputs.append(out)
    assert torch.equal(outputs[0], values[:, 32:].to(torch.bfloat16).to(torch.float32))
    assert torch.equal(outputs[0], outputs[1])
