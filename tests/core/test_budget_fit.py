"""Sessions that fit: what holds for every shape, and the curve of the sweep."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvroll_core.budget import Ask, HeadKv, ModelShape, pages_for, reckon, sweep
from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS, UnknownFormatError

GIB = 2**30
LLAMA_70B = ModelShape(80, 8192, 64, 8, 128, 28672, 128256, False, 131072)
SMALL = ModelShape(4, 256, 8, 2, 32, 512, 1000, True, 65536)

windows = st.sampled_from([(), (64, 0, 64, 0), (100,) * 4])
asks = st.builds(
    Ask,
    weights=st.sampled_from(sorted(WEIGHT_FORMATS)),
    kv_cache=st.sampled_from(sorted(KV_FORMATS)),
    sessions=st.integers(1, 500),
    tokens=st.integers(1, 5000),
    device_bytes=st.integers(1 << 20, 1 << 34),
    residual_tokens=st.integers(0, 256),
)


@given(asks, windows)
def test_the_largest_concurrency_fits_and_one_more_does_not(ask: Ask, kinds: tuple[int, ...]) -> None:
    shape = replace(SMALL, windows=kinds)
    most = reckon(shape, ask).max_sessions
    assert most is not None
    assert not reckon(shape, replace(ask, sessions=most + 1)).fits
    if most:
        assert reckon(shape, replace(ask, sessions=most)).fits


@given(asks, windows)
def test_what_is_asked_fits_exactly_when_it_is_at_most_that(ask: Ask, kinds: tuple[int, ...]) -> None:
    found = reckon(replace(SMALL, windows=kinds), ask)
    assert found.max_sessions is not None
    assert found.fits == (ask.sessions <= found.max_sessions)


@given(asks)
def test_pages_cost_at_most_a_page_more_than_what_they_store(ask: Ask) -> None:
    found = reckon(SMALL, ask)
    stored = found.kv_bytes_stored
    page = 32 * KV_FORMATS["fp32"].token_bytes(layers=4, kv_heads=2, head_dim=32)
    assert stored - 1e-6 <= found.kv_bytes_per_session < stored + page
    assert found.pages == pages_for(ask.tokens) * ask.sessions


@given(asks, st.integers(1, 3000))
def test_longer_sessions_never_cost_less(ask: Ask, more: int) -> None:
    # A sealed format may: the page that a longer session seals shrinks.
    assume(KV_FORMATS[ask.kv_cache].payload_bits > 4)
    longer = replace(ask, tokens=ask.tokens + more)
    assert reckon(SMALL, longer).kv_bytes_total >= reckon(SMALL, ask).kv_bytes_total


def test_a_window_keeps_its_newest_tokens_and_the_sinks() -> None:
    layer = HeadKv(1, 1, 64, window=128, sinks=4)
    assert [layer.kept_tokens(n) for n in (1, 128, 132, 133, 10_000)] == [1, 128, 132, 132, 132]
    sunk = replace(SMALL, windows=(96,) * 4, sinks=32)
    assert reckon(sunk, Ask("bf16", "bf16", 1, 4096)).kv_bytes_total == 128 * 4 * 2 * 4 * 32


def test_a_sealed_format_keeps_its_newest_tokens_in_16_bits() -> None:
    # Of 4096 tokens the newest 128 are bf16 (4d bytes), the others kivi2 (0.75d).
    found = reckon(LLAMA_70B, Ask("bf16", "kivi2", 1, 4096, residual_tokens=128))
    assert found.kv_bytes_total == 80 * 8 * 128 * (128 * 4 + (4096 - 128) * 0.75)
    short = reckon(LLAMA_70B, Ask("bf16", "kivi2", 1, 100, residual_tokens=128))
    assert short.kv_bytes_total == reckon(LLAMA_70B, Ask("bf16", "bf16", 1, 100)).kv_bytes_total


def test_70b_in_bf16_does_not_fit_a_card_of_80_gib() -> None:
    found = reckon(LLAMA_70B, Ask("bf16", "bf16", 128, 4096, device_bytes=80 * GIB))
    assert (found.fits, found.max_sessions) == (False, 0)
    assert found.weights_bytes > 80 * GIB
    assert reckon(LLAMA_70B, Ask("int4", "fp8_e4m3", 32, 4096, device_bytes=80 * GIB)).fits


def test_without_a_device_nothing_is_said_about_fitting() -> None:
    found = reckon(LLAMA_70B, Ask("bf16", "bf16", 1, 32))
    assert (found.fits, found.max_sessions, found.usable_bytes) == (None, None, None)


def test_the_sweep_rises_and_crosses_the_ceiling_at_the_largest_concurrency() -> None:
    ask = Ask("int8", "bf16", 1, 4096, device_bytes=160 * GIB)
    found = reckon(LLAMA_70B, ask)
    assert found.max_sessions
    assert found.usable_bytes
    points = sweep(LLAMA_70B, ask, 2 * found.max_sessions, points=2 * found.max_sessions)
    assert [p.sessions for p in points] == list(range(2 * found.max_sessions + 1))
    assert all(a.total_bytes < b.total_bytes for a, b in pairwise(points))
    assert [p.total_bytes <= found.usable_bytes for p in points].index(False) == found.max_sessions + 1
    assert len(sweep(LLAMA_70B, ask, 1000, points=16)) <= 18


def test_unknown_words_are_refused() -> None:
    with pytest.raises(UnknownFormatError, match="KV cache dtype 'fp7' is unknown; use one of fp32, bf16"):
        reckon(LLAMA_70B, Ask("bf16", "fp7", 1, 32))
    with pytest.raises(UnknownFormatError, match="weights dtype 'nf4' is unknown"):
        reckon(LLAMA_70B, Ask("nf4", "bf16", 1, 32))
