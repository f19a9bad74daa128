"""What a step reads and computes: by hand for one model, against a walk over rows for all."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.budget import ModelShape
from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS
from kvroll_core.precision.precision import Precision
from kvroll_core.work import Span, Work, WorkCounter, WorkModel

SMOLLM2 = ModelShape(30, 576, 9, 3, 64, 1536, 49152, tied_head=True, max_positions=8192)
MATRICES = 30 * (576 * 64 * (2 * 9 + 2 * 3) + 3 * 576 * 1536)
HEAD = 49152 * 576
SPANS = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 64), st.booleans()), max_size=8)


def test_a_decode_step_by_hand() -> None:
    found = WorkModel(SMOLLM2, Precision("bf16", "bf16")).step([(999, 1, True)])
    assert found.steps == 1
    assert found.read_bytes == 2 * MATRICES + 2 * HEAD + 1000 * 30 * 3 * 4 * 64
    assert found.flops == 2 * (MATRICES + HEAD) + 4 * 9 * 64 * 30 * 1000


def test_weights_are_read_once_whatever_the_batch_and_the_head_only_for_logits() -> None:
    model = WorkModel(SMOLLM2, Precision("int4", "int8"))
    one, eight = model.step([(100, 1, True)]), model.step([(100, 1, True)] * 8)
    assert eight.flops == 8 * one.flops
    kv = 101 * 30 * 3 * (2 * 64 + 8)
    assert eight.read_bytes - one.read_bytes == pytest.approx(7 * kv)
    silent = model.step([(100, 1, False)])
    assert one.read_bytes - silent.read_bytes == pytest.approx(2 * HEAD)


def test_rows_of_a_prefill_share_what_they_read() -> None:
    model = WorkModel(SMOLLM2, Precision("bf16", "bf16"))
    chunk, row = model.step([(960, 40, False)]), model.step([(999, 1, False)])
    assert chunk.read_bytes == row.read_bytes


def test_no_rows_are_no_step() -> None:
    assert WorkModel(SMOLLM2, Precision("bf16", "bf16")).step([]) == Work()


@given(
    spans=SPANS,
    window=st.integers(0, 300),
    weights=st.sampled_from(sorted(WEIGHT_FORMATS)),
    kv=st.sampled_from(sorted(KV_FORMATS)),
)
def test_it_is_the_sum_over_rows(spans: list[Span], window: int, weights: str, kv: str) -> None:
    shape = replace(SMOLLM2, layers=3, windows=(0, window, window))
    found = WorkModel(shape, Precision(weights, kv)).step(spans)
    lengths = [start + row + 1 for start, length, _ in spans for row in range(length)]
    attended = sum(n + 2 * (min(n, window) if window else n) for n in lengths)
    linear = 2 * 3 * (576 * 64 * 24 + 3 * 576 * 1536) * len(lengths) + 2 * HEAD * sum(s for *_, s in spans)
    assert found.flops == pytest.approx(linear + 4 * 9 * 64 * attended)
    assert found.steps == bool(spans)


@given(spans=SPANS)
def test_smaller_formats_read_less_and_compute_the_same(spans: list[Span]) -> None:
    wide, small = (WorkModel(SMOLLM2, Precision(w, kv)).step(spans) for w, kv in (("bf16", "bf16"), ("int4", "int8")))
    assert small.flops == wide.flops
    assert small.read_bytes < wide.read_bytes or not spans


def test_the_counter_adds_up() -> None:
    model = WorkModel(SMOLLM2, Precision("bf16", "bf16"))
    counter = WorkCounter(model)
    counter.count([(0, 8, True)])
    counter.count([(8, 1, True)])
    assert counter.done == model.step([(0, 8, True)]).plus(model.step([(8, 1, True)]))
    assert counter.done.steps == 2


def test_block_sizes_and_heads_are_read_at_their_bytes() -> None:
    token = [(10, 1, True)]
    plain, smaller, both = (
        WorkModel(SMOLLM2, Precision("int4", **knobs)).step(token).read_bytes
        for knobs in ({}, {"weight_block": 32}, {"weight_block": 32, "head": "int8"})
    )
    assert smaller - plain == SMOLLM2.matrix_elements * (4 / 32 - 4 / 64)
    assert smaller - both == SMOLLM2.vocab * (SMOLLM2.hidden - 4)


def test_skipped_layers_are_read_at_sixteen_bits() -> None:
    """Also of a model with windows: layers 0 and 1 of four look back 32 tokens."""
    shape = replace(SMOLLM2, layers=4, windows=(32, 32, 0, 0))
    plain, skipped = (
        WorkModel(shape, Precision("bf16", "int8", skip_layers=skip)).step([(99, 1, False)]).read_bytes
        for skip in ((), (1, 3))
    )
    assert skipped - plain == (32 + 100) * 3 * (4 * 64 - (2 * 64 + 8))
