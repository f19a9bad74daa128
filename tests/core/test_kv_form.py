"""One format for most layers and bf16 for those that are left out: its word, its bytes, and what a change of it does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.precision.formats import KV_FORMATS, FormatNotBuiltError, UnknownFormatError, kv_format
from kvroll_core.precision.kv_form import KvForm, SkipLayersError, parse_layers

WHOLE = [name for name, entry in KV_FORMATS.items() if entry.payload_bits > 4]
forms = st.builds(KvForm.of, st.sampled_from(WHOLE), st.lists(st.integers(0, 11)))
SIZES = {"kv_heads": 3, "head_dim": 64}


@given(form=forms)
def test_its_word_says_all_of_it(form: KvForm) -> None:
    assert KvForm.parse(str(form)) == form
    assert str(KvForm.of("int8", (29, 0, 0))) == "int8/bf16:0,29"
    assert str(KvForm.of("bf16", (1,))) == "bf16"


@given(form=forms, layers=st.integers(12, 40))
def test_every_layer_has_one_place_and_pays_for_its_format(form: KvForm, layers: int) -> None:
    parts = form.parts(layers)
    assert sorted(layer for _, part in parts for layer in part) == list(range(layers))
    by_hand = sum(
        KV_FORMATS["bf16" if layer in form.skip_layers else form.kv_format].head_token_bytes(64) * 3
        for layer in range(layers)
    )
    assert form.token_bytes(layers=layers, **SIZES) == by_hand
    assert form.page_bytes(layers=layers, **SIZES) - 32 * by_hand in range(128)


def test_without_layers_to_skip_it_is_the_format() -> None:
    for name in ("bf16", "int8", "mxfp8"):
        assert KvForm(name).page_bytes(layers=30, **SIZES) == kv_format(name).page_bytes(layers=30, **SIZES)


def test_smollm2_with_first_and_last_layer_kept() -> None:
    """28 layers x 3 heads x (2 x 64 + 8) bytes and 2 x 3 x 256."""
    assert KvForm.of("int8", (0, 29)).token_bytes(layers=30, **SIZES) == 28 * 3 * 136 + 2 * 3 * 256


@given(source=forms, target=forms)
def test_the_changes_are_those_of_the_layers(source: KvForm, target: KvForm) -> None:
    def at(form: KvForm, layer: int) -> str:
        return "bf16" if layer in form.skip_layers else form.kv_format

    assert source.changes(target) == {(at(source, layer), at(target, layer)) for layer in range(13)}


def test_what_cannot_be_skipped_is_refused() -> None:
    with pytest.raises(SkipLayersError, match="expected layers to skip from 0 to 1, found 2"):
        KvForm.of("int8", (2,)).page_bytes(layers=2, **SIZES)
    with pytest.raises(SkipLayersError, match="counted from 0, found -1"):
        KvForm.of("int8", (-1,))
    with pytest.raises(FormatNotBuiltError, match=r"kivi4 with layers to skip \(0,1\) is not built"):
        KvForm.of("kivi4", (0, 1))
    with pytest.raises(UnknownFormatError, match="int3"):
        KvForm.parse("int3/bf16:1")
    with pytest.raises(SkipLayersError, match="expected layers like 0,1,29, found '0;1'"):
        parse_layers("0;1")
