"""What a load reads: the head at its own dtype, skipped layers, windows and latents, as the engine's own work model has them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.budget import Latent, ModelShape
from kvroll_core.precision.formats import HEAD_INT8, KV_FORMATS
from kvroll_core.precision.precision import Precision
from kvroll_core.wall import Counters, KernelRates, Load, Machine, classify, predict, recommend
from kvroll_core.work import WorkModel

SMOLLM2 = ModelShape(30, 576, 9, 3, 64, 1536, 49152, tied_head=True, max_positions=8192)
MATRICES = 30 * (576 * 64 * (2 * 9 + 2 * 3) + 3 * 576 * 1536)
HEAD = 49152 * 576
MIB = 2**20
EVEN = KernelRates(weights=dict.fromkeys(("fp32", "bf16", "int8"), 1e10), kv=dict.fromkeys(KV_FORMATS, 1e10))


def load_of(precision: Precision, shape: ModelShape = SMOLLM2) -> Load:
    return Load(shape, precision, sessions=2, tokens=1000, pool_bytes=100 * MIB)


@pytest.mark.parametrize(
    ("precision", "weights", "head"),
    [
        (Precision("fp32", "bf16"), 4 * MATRICES, 4 * HEAD),
        (Precision("bf16", "bf16"), 2 * MATRICES, 2 * HEAD),
        (Precision("bf16", "bf16", head=HEAD_INT8), 2 * MATRICES, HEAD + 4 * 49152),
        (Precision("int4", "bf16", weight_block=32), MATRICES * (0.5 + 4 / 32), 2 * HEAD),
    ],
)
def test_matrices_and_head_are_read_at_their_own_dtypes(precision: Precision, weights: float, head: float) -> None:
    load = load_of(precision)
    assert (load.matrix_read_bytes, load.head_read_bytes) == (weights, head)


def test_a_head_that_shrinks_with_the_weights_is_in_the_prediction() -> None:
    """fp32 weights bring an fp32 head, int8 ones a bf16 head: at equal rates the step follows all bytes."""
    load = load_of(Precision("fp32", "bf16"))
    kv = 2 * 1000 * 30 * 3 * 64 * 4
    found = predict(load, EVEN, weights="int8").step_ratio
    after = load_of(Precision("int8", "bf16")).matrix_read_bytes + 2 * HEAD + kv
    assert found == pytest.approx(after / (4 * MATRICES + 4 * HEAD + kv))


def test_skipped_layers_stay_16_bit_in_bytes_and_in_predictions() -> None:
    load = load_of(Precision("bf16", "int8", skip_layers=(0, 29)))
    token = {"int8": 28 * 3 * (2 * 64 + 8), "bf16": 2 * 3 * 4 * 64}
    assert load.session_bytes_by_format == {name: 1000 * size for name, size in token.items()}
    changed = predict(load, EVEN, kv_cache="fp32")
    assert changed.sessions_ratio == pytest.approx(sum(token.values()) / (28 * 3 * 8 * 64 + token["bf16"]))


def test_a_window_bounds_what_a_session_reads() -> None:
    windowed = replace(SMOLLM2, windows=(100,) * 30)
    assert load_of(Precision("bf16", "bf16"), windowed).session_bytes == 100 * 30 * 3 * 4 * 64


def test_formats_that_latents_cannot_take_are_not_advised() -> None:
    shape = replace(SMOLLM2, latent=Latent(512, 64, 128, 128))
    verdict = classify(
        Counters(
            seconds=10, running=2, waiting=3, waiting_for_room=1, kv_used=0.95, busy_seconds=10, read_bytes=1, flops=1
        ),
        Machine(1e10, 1e11),
    )
    advised = [
        a.to for a in recommend(verdict, load_of(Precision("bf16", "bf16"), shape), EVEN) if a.lever == "kvCache"
    ]
    assert advised
    assert not set(advised) & {"kivi4", "kivi2"}


@given(st.integers(1, 5000), st.sampled_from(sorted(KV_FORMATS)), st.sets(st.integers(0, 29), max_size=4))
def test_a_decode_step_reads_what_the_engine_counts(tokens: int, kv_cache: str, skipped: set[int]) -> None:
    skip = skipped if KV_FORMATS[kv_cache].payload_bits > 4 else set()
    precision = Precision("int8", kv_cache, skip_layers=tuple(skip))
    load = replace(load_of(precision), sessions=3, tokens=tokens)
    counted = WorkModel(SMOLLM2, precision).step([(tokens - 1, 1, True)] * 3)
    assert load.read_bytes == pytest.approx(counted.read_bytes)


@given(st.floats(0.05, 1), st.sampled_from(["int8", "bf16"]))
def test_the_host_s_part_of_a_step_stays(share: float, weights: str) -> None:
    """Also where kernels run slower under load than the rates that were measured alone: all dtypes do alike."""
    load = replace(load_of(Precision("fp32", "bf16")), step_seconds=10.0, kernel_share=share)
    alone = predict(replace(load, step_seconds=None, kernel_share=None), EVEN, weights=weights).step_ratio
    assert alone is not None
    assert predict(load, EVEN, weights=weights).step_ratio == pytest.approx(1 - share + share * alone)
