"""The verdict on a source and a target: every field flipped alone, the known traps, and what policy may and may not
do.
"""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.compat import LEVEL_CONVERSIONS, Descriptor, MovePolicy, Verdict, differences, verdict
from kvroll_core.precision.formats import KV_FORMATS
from kvroll_core.words import VerdictKind

EXACT, CONVERT, REPLAY, REFUSE = VerdictKind.EXACT, VerdictKind.CONVERT, VerdictKind.REPLAY, VerdictKind.REFUSE
EVERYTHING = MovePolicy(allowed=frozenset({EXACT, CONVERT, REPLAY}))
ACROSS = replace(EVERYTHING, kv_across_weights=True)

SOURCE = Descriptor(
    format_version=1,
    weights_id="w-1",
    weights_dtype="bf16",
    base_model_digest="base-1",
    config_hash="config-1",
    tokenizer_hash="tokenizer-1",
    chat_template_hash="template-1",
    kv_format="bf16",
    kv_layout="layer,kv,head,token,dim/32/v1",
    scales_hash="",
    parallelism="tp1",
    engine_version="0.1.0",
    kernel_build_hash="k-1",
    device_name="cpu-a",
    compute_capability="",
    driver="",
    runtime_versions="torch 2.15",
    cpu_isa="avx2",
    max_model_len=2048,
    weight_block=0,
    head_dtype="bf16",
)

# field -> (another value, verdict when everything is allowed, verdict when KV may also cross weights)
FLIPS: dict[str, tuple[object, VerdictKind, VerdictKind]] = {
    "format_version": (2, REFUSE, REFUSE),
    "weights_id": ("w-2", REPLAY, CONVERT),
    "weights_dtype": ("int8", REPLAY, CONVERT),
    "base_model_digest": ("base-2", REFUSE, REFUSE),
    "config_hash": ("config-2", REFUSE, REFUSE),
    "tokenizer_hash": ("tokenizer-2", REFUSE, REFUSE),
    "chat_template_hash": ("template-2", REFUSE, REFUSE),
    "kv_format": ("int8", CONVERT, CONVERT),
    "kv_layout": ("layer,kv,token,head,dim/32/v1", REPLAY, REPLAY),
    "scales_hash": ("scales-2", REPLAY, REPLAY),
    "parallelism": ("tp2", REPLAY, REPLAY),
    "engine_version": ("0.2.0", CONVERT, CONVERT),
    "kernel_build_hash": ("k-2", CONVERT, CONVERT),
    "device_name": ("cpu-b", CONVERT, CONVERT),
    "compute_capability": ("9.0", CONVERT, CONVERT),
    "driver": ("580.1", CONVERT, CONVERT),
    "residual_tokens": (128, CONVERT, CONVERT),
    "runtime_versions": ("torch 2.16", CONVERT, CONVERT),
    "cpu_isa": ("avx512", CONVERT, CONVERT),
    "weight_block": (32, REPLAY, CONVERT),
    "head_dtype": ("int8", REPLAY, CONVERT),
    "kv_skip_layers": ("0,29", CONVERT, CONVERT),
}


def flipped(*names: str) -> Descriptor:
    changes: dict[str, Any] = {name: FLIPS[name][0] for name in names}
    return replace(SOURCE, **changes)


def test_the_table_flips_every_compared_field() -> None:
    assert set(FLIPS) == {f.name for f in fields(Descriptor)} - {"max_model_len"}


def test_equal_descriptors_are_exact_without_a_reason() -> None:
    assert verdict(SOURCE, replace(SOURCE), EVERYTHING) == Verdict(EXACT, (), "token for token as if undisturbed")


@pytest.mark.parametrize("name", FLIPS)
def test_one_field_flipped_decides_and_is_named(name: str) -> None:
    target = flipped(name)
    found = verdict(SOURCE, target, EVERYTHING)
    assert found.kind is FLIPS[name][1]
    assert found.reasons == (f"{name}: {getattr(SOURCE, name)} -> {getattr(target, name)}",)


@pytest.mark.parametrize("name", FLIPS)
def test_one_field_flipped_when_kv_may_cross_weights(name: str) -> None:
    assert verdict(SOURCE, flipped(name), ACROSS).kind is FLIPS[name][2]


@given(names=st.sets(st.sampled_from(sorted(FLIPS)), min_size=2))
def test_many_fields_flipped_are_all_named_and_never_better_than_one(names: set[str]) -> None:
    order = [EXACT, CONVERT, REPLAY, REFUSE]
    found = verdict(SOURCE, flipped(*names), EVERYTHING)
    assert {reason.partition(":")[0] for reason in found.reasons} == names
    assert order.index(found.kind) >= max(order.index(FLIPS[name][1]) for name in names)


# --- traps
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("int8", "fp8_e4m3", CONVERT),
        ("int8", "mxfp8", CONVERT),
        ("fp16", "bf16", CONVERT),
        ("fp8_e4m3", "int8", REPLAY),
        ("fp8_e4m3", "mxfp8", REPLAY),
        ("mxfp8", "fp8_e4m3", REPLAY),
        ("bf16", "fp16", REPLAY),
    ],
)
def test_equal_width_is_not_equal_meaning(source: str, target: str, kind: VerdictKind) -> None:
    """A level change converts only where the source is much finer than the target."""
    found = verdict(replace(SOURCE, kv_format=source), replace(SOURCE, kv_format=target), EVERYTHING)
    assert found.kind is kind
    assert found.reasons == (f"kv_format: {source} -> {target}",)


@pytest.mark.parametrize("name", ["auto", "fp8", ""])
def test_a_format_word_that_says_nothing_is_never_transcoded(name: str) -> None:
    assert verdict(SOURCE, replace(SOURCE, kv_format=name), EVERYTHING).kind is REPLAY
    assert verdict(replace(SOURCE, kv_format=name), SOURCE, EVERYTHING).kind is REPLAY


def test_two_kv_heads_split_or_packed_have_one_size_and_two_meanings() -> None:
    split, packed = replace(SOURCE, kv_layout="kv_heads=2 split"), replace(SOURCE, kv_layout="kv_heads=2 packed")
    assert verdict(split, packed, ACROSS).kind is REPLAY


def test_a_square_page_in_another_order_of_axes_is_not_exact() -> None:
    """Heads == tokens of a block: the sizes agree, the bytes do not mean the same."""
    by_head, by_token = replace(SOURCE, kv_layout="[head, token]"), replace(SOURCE, kv_layout="[token, head]")
    assert verdict(by_head, by_token, ACROSS).kind is REPLAY


def test_the_same_name_with_other_weights_is_replayed() -> None:
    target = replace(SOURCE, weights_id="w-2")
    assert verdict(SOURCE, target, EVERYTHING).kind is REPLAY


def test_another_rope_factor_is_another_model() -> None:
    """It changes config.json and nothing else: cached keys are already rotated."""
    assert verdict(SOURCE, replace(SOURCE, config_hash="rope-factor-8"), ACROSS).kind is REFUSE


def test_both_dtypes_changed_obeys_the_weights_rule() -> None:
    assert verdict(SOURCE, replace(SOURCE, weights_dtype="int8", kv_format="int8"), EVERYTHING).kind is REPLAY


def test_another_base_model_is_never_a_precision_change() -> None:
    assert verdict(SOURCE, replace(SOURCE, base_model_digest="base-2", weights_id="w-2"), ACROSS).kind is REFUSE


@pytest.mark.parametrize("source", KV_FORMATS)
@pytest.mark.parametrize("target", KV_FORMATS)
def test_every_pair_of_kv_formats(source: str, target: str) -> None:
    """Down converts, and level where it is worth it; all else replays: it would keep the old error for the whole
    context.
    """
    found = verdict(replace(SOURCE, kv_format=source), replace(SOURCE, kv_format=target), EVERYTHING)
    bits = {name: f.payload_bits for name, f in KV_FORMATS.items()}
    converts = bits[target] < bits[source] or (source, target) in LEVEL_CONVERSIONS
    assert found.kind is (EXACT if source == target else CONVERT if converts else REPLAY)


def test_a_level_conversion_is_level_and_one_way() -> None:
    for source, target in LEVEL_CONVERSIONS:
        assert KV_FORMATS[source].payload_bits == KV_FORMATS[target].payload_bits
        assert (target, source) not in LEVEL_CONVERSIONS


# --- policy
# --------------------------------------------------------------------------------------------------------------------


def test_what_is_not_allowed_falls_to_the_next_weaker_way() -> None:
    no_convert = MovePolicy(allowed=frozenset({EXACT, REPLAY}))
    found = verdict(SOURCE, flipped("kv_format"), no_convert)
    assert found.kind is REPLAY
    assert found.reasons == ("kv_format: bf16 -> int8",)


def test_policy_never_makes_a_verdict_stronger() -> None:
    only_exact = MovePolicy(allowed=frozenset({EXACT}))
    found = verdict(SOURCE, flipped("kv_format"), only_exact)
    assert found.kind is REFUSE
    assert found.reasons == ("kv_format: bf16 -> int8", "policy: Convert and what is weaker is not allowed")


@pytest.mark.parametrize("name", [n for n, (_, kind, _) in FLIPS.items() if kind is not REFUSE])
def test_a_reproducible_session_accepts_only_exact(name: str) -> None:
    reproducible = replace(EVERYTHING, reproducible=True)
    assert verdict(SOURCE, SOURCE, reproducible).kind is EXACT
    found = verdict(SOURCE, flipped(name), reproducible)
    assert found.kind is REFUSE
    assert found.reasons[-1] == "reproducible: only Exact is accepted"


@pytest.mark.parametrize(("total_tokens", "kind"), [(2048, EXACT), (2049, REFUSE)])
def test_a_session_that_may_outgrow_the_target_is_refused_with_the_sum(total_tokens: int, kind: VerdictKind) -> None:
    found = verdict(SOURCE, SOURCE, replace(EVERYTHING, total_tokens=total_tokens))
    assert found.kind is kind
    assert found.reasons == (() if kind is EXACT else ("context: 2049 tokens do not fit into 2048",))


def test_room_is_asked_of_the_target_alone_and_does_not_change_bits() -> None:
    roomy = replace(SOURCE, max_model_len=8192)
    assert verdict(SOURCE, roomy, replace(EVERYTHING, total_tokens=4096)).kind is EXACT
    assert verdict(roomy, SOURCE, replace(EVERYTHING, total_tokens=4096)).kind is REFUSE
    assert differences(SOURCE, roomy) == ()


def test_a_refusal_for_the_model_is_not_blamed_on_the_policy() -> None:
    found = verdict(SOURCE, flipped("tokenizer_hash"), MovePolicy(allowed=frozenset()))
    assert found.kind is REFUSE
    assert found.reasons == ("tokenizer_hash: tokenizer-1 -> tokenizer-2",)


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        (("bf16", ""), ("int8", "0,29"), CONVERT),
        (("int8", "0,29"), ("int8", "0"), CONVERT),
        (("int8", "0"), ("fp8_e4m3", "0"), CONVERT),
        (("int8", "0"), ("int8", "0,29"), REPLAY),  # layer 29 would be bf16 with int8's error in it
        (("int8", "0"), ("bf16", ""), REPLAY),
        (("fp32", "0"), ("fp16", "0"), CONVERT),
        (("fp32", "0"), ("fp32", "1"), REPLAY),
    ],
)
def test_layers_that_are_skipped_are_judged_one_by_one(
    source: tuple[str, str], target: tuple[str, str], kind: VerdictKind
) -> None:
    here, there = (replace(SOURCE, kv_format=kv, kv_skip_layers=layers) for kv, layers in (source, target))
    assert verdict(here, there, EVERYTHING).kind is kind
