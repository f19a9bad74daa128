"""Convert: pages of one engine read in the format of another go on there."""

import pytest

from kvroll_core.compat import MovePolicy, verdict
from kvroll_core.formats import FormatNotBuiltError, kv_format
from kvroll_core.words import VerdictKind
from tests.worker.test_engine_equalities import move
from tests.worker.tiny_model import MakeEngine, collect, prompt_of, state_of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bf16", "int8"),
        ("bf16", "fp8_e4m3"),
        ("bf16", "mxfp8"),
        ("fp32", "fp16"),
        ("fp16", "bf16"),
        ("int8", "fp8_e4m3"),
    ],
)
def test_pages_read_in_another_format_go_on_in_its_engine(make_engine: MakeEngine, old: str, new: str) -> None:
    source, target = make_engine(kv_cache=old), make_engine(kv_cache=new)
    source.submit(state_of("a", prompt_of(60)))
    before = collect(source, steps=8)["a"]
    data = source.read_page("a", 0, new)
    assert len(data) == kv_format(new).page_bytes(layers=2, kv_heads=2, head_dim=16)
    move(source, target, "a")
    after = collect(target)["a"]
    assert len(before + after) == 20
    assert after[-1][2] == "length"
    assert target.stats().pages_free == target.stats().pages_total


def test_a_converted_first_layer_is_what_the_int8_engine_would_have_stored(make_engine: MakeEngine) -> None:
    """Layer 0 does not depend on the cache, so its converted keys differ from native int8 only by the bf16 rounding before."""
    source, native = make_engine(), make_engine(kv_cache="int8")
    for engine in (source, native):
        engine.submit(state_of("a", prompt_of(40)))
        collect(engine, steps=1)
    converted, stored = source.read_page("a", 0, "int8"), native.read_page("a", 0, "int8")
    layer = 2 * 2 * 32 * 16
    steps = [
        abs(int.from_bytes(converted[i : i + 1], signed=True) - int.from_bytes(stored[i : i + 1], signed=True))
        for i in range(layer)
    ]
    assert max(steps) <= 1


def test_unwritten_slots_are_zero_in_every_format(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit(state_of("old", prompt_of(32, seed=9)))
    collect(engine)  # leaves its bytes in the pages that "a" gets
    engine.submit(state_of("a", prompt_of(1)))
    collect(engine, steps=1)
    page = engine.read_page("a", 0, "bf16")
    head = 32 * 16 * 2
    assert page[32:head] == bytes(head - 32)
    assert page[:32] != bytes(32)
    for narrow in ("int8", "fp8_e4m3", "mxfp8"):
        assert engine.read_page("a", 0, narrow)[16 : 32 * 16] == bytes(31 * 16)


def test_a_format_that_is_not_built_is_refused_by_name(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit(state_of("a", prompt_of(4)))
    collect(engine, steps=1)
    with pytest.raises(FormatNotBuiltError, match="kivi2"):
        engine.read_page("a", 0, "kivi2")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"kv_cache": "int8", "kv_skip_layers": (1,)}),
        ({"kv_cache": "int8", "kv_skip_layers": (0, 1)}, {"kv_cache": "int8", "kv_skip_layers": (0,)}),
        ({"kv_cache": "int8", "kv_skip_layers": (1,)}, {"kv_cache": "int8"}),
        ({"kv_cache": "fp16"}, {"kv_cache": "mxfp8", "kv_skip_layers": (0,)}),
    ],
)
def test_pages_that_differ_in_skipped_layers_convert(
    make_engine: MakeEngine, old: dict[str, object], new: dict[str, object]
) -> None:
    source, target = make_engine(**old), make_engine(**new)
    found = verdict(source.descriptor, target.descriptor, MovePolicy(frozenset(VerdictKind)))
    assert found.kind is VerdictKind.CONVERT
    source.submit(state_of("a", prompt_of(60)))
    before = collect(source, steps=8)["a"]
    assert len(source.read_page("a", 0, target.descriptor.kv_form)) == target.stats().page_bytes
    move(source, target, "a")
    after = collect(target)["a"]
    assert len(before + after) == 20
    assert target.stats().pages_free == target.stats().pages_total


def test_a_skipped_layer_converts_without_a_loss(make_engine: MakeEngine) -> None:
    source, target = make_engine(), make_engine(kv_cache="int8", kv_skip_layers=(0,))
    source.submit(state_of("a", prompt_of(40)))
    collect(source, steps=1)
    layer = 2 * 2 * 32 * 16 * 2
    plain, mixed = source.read_page("a", 0, "bf16"), source.read_page("a", 0, target.descriptor.kv_form)
    assert mixed[-layer:] == plain[:layer]
