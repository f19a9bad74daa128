"""Convert: pages of one engine read in the format of another go on there."""

from itertools import pairwise

import pytest

from kvroll_core.compat import MovePolicy, verdict
from kvroll_core.precision.formats import UnknownFormatError, kv_format
from kvroll_core.words import VerdictKind
from kvroll_worker.request import EngineError
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
        ("bf16", "kivi4"),
        ("fp32", "kivi2"),
        ("int8", "kivi4"),
        ("kivi4", "kivi2"),
        ("kivi4", "bf16"),
        ("kivi2", "mxfp8"),
        ("kivi2", "kivi4"),
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


def test_a_converted_first_layer_is_what_the_kivi_engine_sealed(make_engine: MakeEngine) -> None:
    source, native = make_engine(), make_engine(kv_cache="kivi4")
    for engine in (source, native):
        engine.submit(state_of("a", prompt_of(70)))
        collect(engine, steps=4)
    assert native.held["a"].num_sealed == 1
    layer = 2 * 2 * 32 * 16 // 2
    assert source.read_page("a", 0, "kivi4")[:layer] == native.read_page("a", 0, "kivi4")[:layer]


def test_a_chain_of_formats_and_residuals(make_engine: MakeEngine) -> None:
    """Sealed pages become open ones again where the residual grows, and the other way round."""
    chain: list[dict[str, object]] = [
        {"kv_cache": "bf16"},
        {"kv_cache": "kivi4", "residual_tokens": 64},
        {"kv_cache": "kivi4", "residual_tokens": 32},
        {"kv_cache": "kivi4", "residual_tokens": 96},
        {"kv_cache": "kivi2"},
        {"kv_cache": "int8"},
        {"kv_cache": "kivi2", "residual_tokens": 64},
    ]
    engines = [make_engine(**config) for config in chain]
    engines[0].submit(state_of("a", prompt_of(120), max_tokens=60))
    emitted = collect(engines[0], steps=3)["a"]
    for source, target in pairwise(engines):
        move(source, target, "a")
        source.check_integrity()
        assert source.stats().pages_free == source.stats().pages_total
        emitted += collect(target, steps=7)["a"]
    emitted += collect(engines[-1])["a"]
    assert len(emitted) == 60


def test_pages_in_a_form_that_the_next_token_does_not_read_are_refused(make_engine: MakeEngine) -> None:
    source, target = make_engine(kv_cache="kivi4"), make_engine(kv_cache="kivi4")
    source.submit(state_of("a", prompt_of(100)))
    collect(source, steps=5)
    source.freeze("a")
    covered = source.num_kv_tokens("a")
    assert covered == 101
    for forms in (["bf16"] * 4, ["kivi4", "kivi4", "kivi4", "bf16"], ["kivi4", "bf16", "bf16", "bf16"]):
        target.reserve("a", 4)
        for index, form in enumerate(forms):
            target.write_page("a", index, source.read_page("a", index, form), None)
        with pytest.raises(EngineError, match="pages 0 to 1 of a sealed and 2 to 3 open"):
            target.restore(source.snapshot("a"), covered)
        target.cancel("a")
        target.check_integrity()
    with pytest.raises(ValueError, match="whole pages"):
        source.read_page("a", 3, "kivi4")
    assert target.stats().pages_free == target.stats().pages_total


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


def test_a_format_that_is_not_known_is_refused_by_name(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit(state_of("a", prompt_of(4)))
    collect(engine, steps=1)
    with pytest.raises(UnknownFormatError, match="kivi3"):
        engine.read_page("a", 0, "kivi3")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"kv_cache": "int8", "skip_layers": (1,)}),
        ({"kv_cache": "int8", "skip_layers": (0, 1)}, {"kv_cache": "int8", "skip_layers": (0,)}),
        ({"kv_cache": "int8", "skip_layers": (1,)}, {"kv_cache": "int8"}),
        ({"kv_cache": "fp16"}, {"kv_cache": "mxfp8", "skip_layers": (0,)}),
        ({"kv_cache": "int8", "skip_layers": (1,)}, {"kv_cache": "kivi4"}),
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


def test_sealed_pages_to_and_from_skipped_layers_hold_what_each_layer_held(make_engine: MakeEngine) -> None:
    mixed, sealed = make_engine(kv_cache="int8", skip_layers=(1,)), make_engine(kv_cache="kivi4")
    for engine in (mixed, sealed):
        engine.submit(state_of("a", prompt_of(70)))
        collect(engine, steps=4)
    layer = 2 * 2 * 32 * 16
    whole = mixed.read_page("a", 0, "bf16")
    assert len(mixed.read_page("a", 0, "kivi4")) == sealed.stats().page_bytes
    # Layer 1 lies in bf16 at the end of the mixed page, and of the sealed one as its page in bf16 says.
    assert mixed.read_page("a", 0, mixed.descriptor.kv_form)[-2 * layer :] == whole[-2 * layer :]
    assert (
        sealed.read_page("a", 0, mixed.descriptor.kv_form)[-2 * layer :]
        == sealed.read_page("a", 0, "bf16")[-2 * layer :]
    )


def test_a_skipped_layer_converts_without_a_loss(make_engine: MakeEngine) -> None:
    source, target = make_engine(), make_engine(kv_cache="int8", skip_layers=(0,))
    source.submit(state_of("a", prompt_of(40)))
    collect(source, steps=1)
    layer = 2 * 2 * 32 * 16 * 2
    plain, mixed = source.read_page("a", 0, "bf16"), source.read_page("a", 0, target.descriptor.kv_form)
    assert mixed[-layer:] == plain[:layer]
