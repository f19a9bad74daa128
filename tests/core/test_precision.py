"""A precision is one value: what makes two equal, and what others write of it."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.compat import Descriptor
from kvroll_core.precision.codec import described, labels, read_described, read_labels, read_spec, spec_content
from kvroll_core.precision.formats import HEADS, KV_FORMATS, WEIGHT_FORMATS, FormatNotBuiltError, UnknownFormatError
from kvroll_core.precision.kv_form import SkipLayersError
from kvroll_core.precision.precision import Precision
from kvroll_core.precision.sealing import SEALED_FORMATS, ResidualError

EMPTY = Descriptor(1, "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "")


@st.composite
def precisions(draw: st.DrawFn) -> Precision:
    kv_cache = draw(st.sampled_from(sorted(KV_FORMATS)))
    skipped = () if kv_cache in SEALED_FORMATS else tuple(draw(st.lists(st.integers(0, 40), max_size=4)))
    return Precision(
        weights=draw(st.sampled_from(sorted(WEIGHT_FORMATS))),
        kv_cache=kv_cache,
        weight_block=draw(st.sampled_from((32, 64, 128))),
        head=draw(st.sampled_from(HEADS)),
        skip_layers=skipped,
        residual_tokens=32 * draw(st.integers(1, 8)),
    )


@given(precisions())
def test_a_descriptor_and_its_labels_say_the_whole_precision(asked: Precision) -> None:
    told = replace(EMPTY, **described(asked))
    assert read_described(told) == asked
    assert read_labels(labels(told)) == asked


@given(precisions())
def test_the_content_of_a_revision_says_the_whole_precision(asked: Precision) -> None:
    spec: dict[str, Any] = {
        "weights": asked.weights, "kvCache": asked.kv_cache, "weightBlockSize": asked.weight_block, "head": asked.head,
        "skipLayers": list(asked.skip_layers), "residualTokens": asked.residual_tokens,
    }  # fmt: skip
    assert read_spec(spec) == asked
    assert read_spec(spec_content(spec)) == asked


@given(precisions(), precisions())
def test_two_are_equal_where_no_byte_differs(one: Precision, other: Precision) -> None:
    assert (one == other) == (described(one) == described(other))
    if one == other:
        assert hash(one) == hash(other)
        assert str(one) == str(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Precision("int8", weight_block=32), Precision("int8", weight_block=128)),
        (Precision(residual_tokens=32), Precision(residual_tokens=256)),
        (Precision(skip_layers=(0, 29)), Precision()),
        (Precision(kv_cache="int8", skip_layers=(29, 0, 0)), Precision(kv_cache="int8", skip_layers=(0, 29))),
    ],
    ids=str,
)
def test_a_knob_that_a_dtype_has_not_makes_no_difference(one: Precision, other: Precision) -> None:
    assert one == other


@pytest.mark.parametrize("part", [f.name for f in fields(Precision)])
def test_each_part_makes_a_difference_where_it_means_something(part: str) -> None:
    base = Precision("int4", "kivi4") if part in ("weight_block", "residual_tokens") else Precision("int4", "int8")
    other: dict[str, Any] = {
        "weights": "mxfp4", "kv_cache": "fp8_e4m3", "weight_block": 32, "head": "int8", "skip_layers": (1,), "residual_tokens": 64,
    }  # fmt: skip
    assert replace(base, **{part: other[part]}) != base
    assert str(replace(base, **{part: other[part]})) != str(base)


def test_a_word_of_another_version_is_refused_when_it_is_asked_and_equal_to_itself() -> None:
    newer = Precision("int3", "kivi1")
    assert newer == Precision("int3", "kivi1") != Precision("int3", "kivi2")
    with pytest.raises(UnknownFormatError, match="int3"):
        newer.check()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Precision("int4", weight_block=48), UnknownFormatError),
        (Precision(head="fp8"), UnknownFormatError),
        (Precision(kv_cache="kivi4", residual_tokens=33), ResidualError),
        (Precision(kv_cache="kivi4", skip_layers=(0,)), FormatNotBuiltError),
        (Precision(kv_cache="int8", skip_layers=(-1,)), SkipLayersError),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused(wrong: Precision, error: type[Exception]) -> None:
    with pytest.raises(error):
        wrong.check()
