"""The bytes of every dtype against the table of the design, written out here once more by hand."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.precision.formats import (
    KV_FORMATS,
    PAGE_ALIGN_BYTES,
    PAGE_TOKENS,
    WEIGHT_FORMATS,
    FormatNotBuiltError,
    UnknownFormatError,
    kv_format,
    weight_format,
)

# Bytes per token, layer and KV head, K and V together: {dtype: {head_dim: bytes}}.
KV_BYTES = {
    "fp32": {64: 512, 80: 640, 128: 1024},
    "bf16": {64: 256, 80: 320, 128: 512},
    "fp16": {64: 256, 80: 320, 128: 512},
    "fp8_e4m3": {64: 136, 80: 168, 128: 264},
    "int8": {64: 136, 80: 168, 128: 264},
    "mxfp8": {64: 132, 80: 166, 128: 264},
    "kivi4": {64: 80, 80: 102, 128: 160},  # of 80 dimensions the last 16 have a scale and zero of their own
    "kivi2": {64: 48, 80: 62, 128: 96},
}
# Mean bytes of an element: {dtype: {block: bytes}}.
WEIGHT_BYTES = {
    "fp32": {64: Fraction(4)},
    "bf16": {64: Fraction(2)},
    "fp16": {64: Fraction(2)},
    "fp8_e4m3": {64: Fraction(1)},
    "int8": {64: Fraction(1)},
    "int4": {32: Fraction(5, 8), 64: Fraction(9, 16), 128: Fraction(17, 32)},
    "mxfp4": {32: Fraction(17, 32), 64: Fraction(17, 32)},
}
BUILT_KV = tuple(KV_BYTES)
BUILT_WEIGHTS = tuple(WEIGHT_BYTES)

shapes = st.fixed_dictionaries(
    {"layers": st.integers(1, 128), "kv_heads": st.integers(1, 64), "head_dim": st.sampled_from([32, 64, 96, 128, 256])}
)


def test_the_words_are_those_of_the_design_in_its_order() -> None:
    assert list(KV_FORMATS) == list(KV_BYTES)
    assert list(WEIGHT_FORMATS) == list(WEIGHT_BYTES)


@pytest.mark.parametrize(
    ("name", "head_dim", "expected"), [(n, d, b) for n, row in KV_BYTES.items() for d, b in row.items()]
)
def test_kv_bytes_of_a_token_layer_and_head(name: str, head_dim: int, expected: int) -> None:
    assert KV_FORMATS[name].head_token_bytes(head_dim) == expected


@pytest.mark.parametrize(
    ("name", "block", "expected"), [(n, k, b) for n, row in WEIGHT_BYTES.items() for k, b in row.items()]
)
def test_weight_bytes_of_an_element(name: str, block: int, expected: Fraction) -> None:
    assert Fraction(WEIGHT_FORMATS[name].element_bytes(block)) == expected


def test_a_known_model_comes_to_the_known_sum() -> None:
    """Llama-3.1-70B: 80 layers, 8 KV heads of 128, bf16: 320 KiB a token; 128 sessions of 4096 tokens are 160 GiB."""
    token_bytes = KV_FORMATS["bf16"].token_bytes(layers=80, kv_heads=8, head_dim=128)
    assert token_bytes == 320 * 1024
    assert token_bytes * 128 * 4096 == 160 * 2**30


def test_a_page_of_the_demo_model() -> None:
    """SmolLM2-135M: 30 layers, 3 KV heads of 64."""
    shape = {"layers": 30, "kv_heads": 3, "head_dim": 64}
    assert KV_FORMATS["bf16"].page_bytes(**shape) == 32 * 30 * 3 * 256 == 737_280
    assert KV_FORMATS["int8"].page_bytes(**shape) == 32 * 30 * 3 * 136 == 391_680


@pytest.mark.parametrize("name", KV_FORMATS)
@given(shape=shapes)
def test_a_page_is_its_tokens_rounded_up_to_the_alignment(name: str, shape: dict[str, int]) -> None:
    tokens_bytes = KV_FORMATS[name].token_bytes(**shape) * PAGE_TOKENS
    page_bytes = KV_FORMATS[name].page_bytes(**shape)
    assert page_bytes % PAGE_ALIGN_BYTES == 0
    assert tokens_bytes <= page_bytes < tokens_bytes + PAGE_ALIGN_BYTES


@given(shape=shapes)
def test_fewer_payload_bits_never_cost_more_bytes(shape: dict[str, int]) -> None:
    ordered = sorted(KV_FORMATS.values(), key=lambda f: f.payload_bits)
    for small, large in pairwise(ordered):
        if small.payload_bits < large.payload_bits:
            assert small.page_bytes(**shape) < large.page_bytes(**shape)


def test_what_is_built_is_found() -> None:
    assert [n for n, f in KV_FORMATS.items() if f.built] == list(BUILT_KV)
    assert [n for n, f in WEIGHT_FORMATS.items() if f.built] == list(BUILT_WEIGHTS)
    assert [kv_format(n).name for n in BUILT_KV] == list(BUILT_KV)
    assert [weight_format(n).name for n in BUILT_WEIGHTS] == list(BUILT_WEIGHTS)


def test_a_known_kv_dtype_that_is_not_built_is_refused_with_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KV_FORMATS, "kivi2", replace(KV_FORMATS["kivi2"], built=False))
    with pytest.raises(FormatNotBuiltError, match=r"kivi2 is not built in this version; use one of fp32, .* kivi4$"):
        kv_format("kivi2")


@pytest.mark.parametrize("name", ["auto", "fp8", "BF16", "", "int2", "fp8_e5m2"])
def test_a_word_that_is_not_ours_is_unknown_and_not_merely_unbuilt(name: str) -> None:
    with pytest.raises(UnknownFormatError, match=f"is unknown; use one of {', '.join(BUILT_KV)}"):
        kv_format(name)
    with pytest.raises(UnknownFormatError, match=f"is unknown; use one of {', '.join(BUILT_WEIGHTS)}"):
        weight_format(name)
