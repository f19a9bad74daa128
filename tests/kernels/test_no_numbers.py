"""NaN and infinity in K, V or the query are told by every implementation in every KV format, and reach no token that does not see them."""

import math
from typing import Any

import pytest
import torch

from kvroll_core.precision.formats import KV_FORMATS
from kvroll_core.precision.sealing import SEALED_FORMATS
from kvroll_kernels.page_layout import MX_BLOCK, PageLayout
from kvroll_kernels.reference.sealed_pages import fetch_page
from kvroll_kernels.reference.tensors import array_of
from tests.kernels.tensor_ops import TensorOps
from tests.kernels.test_kv_pages import written_page

Case = Any
FORMATS = [name for name, entry in KV_FORMATS.items() if entry.built]
NO_NUMBERS = [math.nan, -math.nan, math.inf, -math.inf]
TOKENS, SICK = 300, 170  # the second split begins at 256; page 5 holds tokens 160 to 191
each_format = pytest.mark.parametrize("kv_format", FORMATS)


def rows_of(dim: int, which: int, value: float, token: int = 9, element: int = 40) -> torch.Tensor:
    """32 rows of K and V of one head, with one element of one token that is no number."""
    rows = torch.randn(32, 2 * dim)
    rows[token, which * dim + element] = value
    return rows


@each_format
@pytest.mark.parametrize("which", [0, 1], ids=["K", "V"])
@pytest.mark.fast_where(any_ops="avx2", kv_format=("fp16", "int8", "mxfp8", "kivi4"))
@pytest.mark.fast_where(any_ops="plain", kv_format="int8")
def test_what_is_stored_is_no_number_and_the_rest_is_what_it_was(
    any_ops: TensorOps, reference: TensorOps, kv_format: str, which: int
) -> None:
    sizes, layout = (1, 1, 64), PageLayout(kv_format, 1, 1, 64)
    for value in NO_NUMBERS:
        torch.default_generator.manual_seed(3)
        rows = rows_of(64, which, value)
        page = written_page(any_ops, kv_format, sizes, rows)
        assert torch.equal(page, written_page(reference, kv_format, sizes, rows)), "bytes differ from the oracle's"
        held = fetch_page(layout, array_of(page))[0, :, 0]
        told = ~held.isfinite()
        assert bool(told[which, 9, 40])
        rows[9, which * 64 + 40] = 0.25
        sound = fetch_page(layout, array_of(written_page(reference, kv_format, sizes, rows)))[0, :, 0]
        assert torch.equal(held[~told], sound[~told])
        expected = torch.zeros_like(told)
        if kv_format in ("fp32", "bf16", "fp16"):
            expected[which, 9, 40] = True
        elif kv_format in ("int8", "fp8_e4m3"):
            expected[which, 9] = True
        elif kv_format == "mxfp8" or which == 1:
            expected[which, 9, MX_BLOCK:] = True
        else:  # K of a sealed page has a scale a channel
            expected[0, :, 40] = True
        assert torch.equal(told, expected)


@pytest.mark.parametrize("target", FORMATS)
@each_format
@pytest.mark.fast_where(any_ops="avx2")
@pytest.mark.fast_where(kv_format="bf16")
def test_transcoding_keeps_it(any_ops: TensorOps, kv_format: str, target: str) -> None:
    page = written_page(any_ops, kv_format, (1, 1, 64), rows_of(64, 0, math.nan))
    page = any_ops.transcode(page, kv_format, target, 1, 1, 64)
    assert not bool(fetch_page(PageLayout(target, 1, 1, 64), array_of(page))[0, 0, 0, 9, 40].isfinite())
    rows = rows_of(64, 1, math.inf)
    page = any_ops.transcode(written_page(any_ops, kv_format, (1, 1, 64), rows), kv_format, target, 1, 1, 64)
    assert not bool(fetch_page(PageLayout(target, 1, 1, 64), array_of(page))[0, 1, 0, 9, 40].isfinite())


@pytest.mark.parametrize("sinks", [False, True], ids=["", "sinks"])
@pytest.mark.parametrize("part", ["K", "V", "query"])
@each_format
@pytest.mark.fast_where(any_ops="avx2", sinks=False)
@pytest.mark.fast_where(any_ops="plain", kv_format="int8", sinks=True)
@pytest.mark.fast_where(any_ops="reference", kv_format=("int8", "kivi4"), part="K", sinks=False)
def test_attention_tells_it_to_every_row_that_sees_it_and_to_no_other(
    any_ops: TensorOps, attention_case: Case, kv_format: str, part: str, sinks: bool
) -> None:
    """The last rows' windows begin behind the token's page: one in mid-page, one at a border."""
    lengths, window = [160, 170, 171, 256, 235, 256, 300], 64
    sees = [False, False, True, False, False, False, False]
    sink = torch.randn(4) if sinks else None
    for value in NO_NUMBERS:
        torch.default_generator.manual_seed(5)
        case = attention_case.make(kv_format, 32, 2, TOKENS)
        query = torch.randn(len(lengths), case.q_width)
        case.write(any_ops)
        sound = [case.attend(any_ops, query, lengths, w, sink) for w in (0, window)]
        width = case.layout.kv_heads * case.layout.head_dim
        if part == "query":
            query[2, 7] = value
            found = [case.attend(any_ops, query, lengths, w, sink) for w in (0, window)]
            told = [sees, sees]
        else:
            case.values[SICK, case.q_width + (width if part == "V" else 0) + 3] = value
            case.write(any_ops)
            found = [case.attend(any_ops, query, lengths, w, sink) for w in (0, window)]
            told = [
                [length > SICK for length in lengths],
                [length > SICK and length - window <= SICK for length in lengths],
            ]
        for result, whole, expected in zip(found, sound, told, strict=True):
            for row, is_told in enumerate(expected):
                if is_told:
                    assert not bool(result[row].isfinite().all()), (value, row)
                else:
                    assert torch.equal(result[row], whole[row]), (value, row)


@each_format
@pytest.mark.fast_where(any_ops="avx2")
@pytest.mark.fast_where(kv_format="int8")
def test_what_lies_in_slots_that_no_row_covers_reaches_nobody(
    any_ops: TensorOps, attention_case: Case, kv_format: str
) -> None:
    """A page that was another session's before: its later tokens are still there, and are no numbers."""
    if kv_format in SEALED_FORMATS:
        pytest.skip("a sealed page is written whole; its open pages are bf16's case")
    case = attention_case.make(kv_format, 32, 2, TOKENS)
    query = torch.randn(2, case.q_width)
    case.write(any_ops)
    sound = case.attend(any_ops, query, [150, 150])
    case.values[150:] = math.nan
    case.write(any_ops)
    assert torch.equal(case.attend(any_ops, query, [150, 150]), sound)


def test_squares_out_of_range_are_told(native: TensorOps) -> None:
    x, weight = torch.randn(3, 64), torch.ones(64)
    x[1, 5] = 1e25
    out = torch.zeros(3, 64)
    native.rms_norm(native.buffer(x), native.buffer(weight), native.buffer(out), 3, 1e-6)
    assert bool(out[1].isnan().all())
    assert bool(out[[0, 2]].isfinite().all())


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_rowwise_kernels_pass_it_on(any_ops: TensorOps, value: float) -> None:
    x, weight, out = torch.randn(2, 64), torch.ones(64), torch.zeros(2, 64)
    x[0, 5] = value
    any_ops.rms_norm(any_ops.buffer(x), any_ops.buffer(weight), any_ops.buffer(out), 2, 1e-6)
    assert not bool(out[0].isfinite().all())
    assert bool(out[1].isfinite().all())
    for column in (5, 37):  # as the gate, and as what it gates
        pair, gated = torch.randn(2, 64), torch.zeros(2, 32)
        pair[0, column] = value
        any_ops.silu_mul(any_ops.buffer(pair), any_ops.buffer(gated), 2)
        assert bool(gated[1].isfinite().all())
        if value != -math.inf or column == 37:  # silu(-inf) is 0 in the limit
            assert not bool(gated[0].isfinite().all())
    product = torch.zeros(2, 8)
    any_ops.gemm(any_ops.linear(torch.randn(8, 64)), any_ops.buffer(x), any_ops.buffer(product), 2)
    assert not bool(product[0].isfinite().any())
    assert bool(product[1].isfinite().all())
