"""The arithmetic of memory: published figures, and refusals that say what would fit."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.budget import (
    BudgetError,
    BudgetRequest,
    ModelShape,
    format_bytes,
    kv_token_bytes,
    plan_budget,
    weights_bytes,
)
from kvroll_core.precision.formats import UnknownFormatError
from kvroll_core.precision.kv_form import SkipLayersError
from kvroll_core.precision.precision import Precision

LLAMA_70B = ModelShape(
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    intermediate=28672,
    vocab=128256,
    tied_head=False,
    max_positions=131072,
)
SMOLLM2 = ModelShape(
    layers=30,
    hidden=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    intermediate=1536,
    vocab=49152,
    tied_head=True,
    max_positions=8192,
)
REQUEST = BudgetRequest(Precision(), max_model_len=2048, max_sessions=8, max_batch_tokens=256, kv_memory_bytes=64 << 20)


def test_llama_70b_costs_320_kib_a_token_and_160_gib_at_128_sessions_of_4096() -> None:
    assert kv_token_bytes(LLAMA_70B, "bf16") == 320 * 1024
    assert kv_token_bytes(LLAMA_70B, "bf16") * 128 * 4096 == 160 * 1024**3
    assert format_bytes(160 * 1024**3) == "160.0 GiB"


def test_llama_70b_has_70_6_billion_parameters() -> None:
    assert round((LLAMA_70B.matrix_elements + LLAMA_70B.plain_elements) / 1e9, 2) == 70.55
    assert round(weights_bytes(LLAMA_70B, "int8") / weights_bytes(LLAMA_70B, "bf16"), 2) == 0.51


def test_smollm2_is_as_large_as_its_file() -> None:
    # 134,515,008 parameters, the head counted once.
    assert weights_bytes(SMOLLM2, "bf16") == 2 * 134_515_008
    assert weights_bytes(SMOLLM2, "fp32") == 4 * 134_515_008
    assert kv_token_bytes(SMOLLM2, "bf16") == 23040
    assert kv_token_bytes(SMOLLM2, "int8") == 12240


def test_a_budget_counts_pages_and_sessions() -> None:
    budget = plan_budget(SMOLLM2, REQUEST)
    assert budget.page_bytes == 32 * 23040
    assert budget.pages == (64 << 20) // (32 * 23040) - 1
    assert budget.kv_bytes <= 64 << 20
    assert budget.sessions_at_max_len == budget.pages // 64
    assert "22.5 KiB a token" in str(budget)
    assert f"{budget.sessions_at_max_len} sessions at 2048 tokens" in str(budget)


def test_without_a_kv_size_the_pool_takes_what_the_limit_leaves() -> None:
    budget = plan_budget(SMOLLM2, replace(REQUEST, kv_memory_bytes=None, memory_limit_bytes=1 << 30))
    used = budget.weights_bytes + budget.activations_bytes + budget.kv_bytes
    assert 0 <= 0.9 * (1 << 30) - used < budget.page_bytes + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_model_len": 9000}, "max_model_len 9000 is not possible: the model knows 8192 positions; use 2 to 8192"),
        (
            {"kv_memory_bytes": 8 << 20},
            r"2048 needs 64 pages \+ the null page x 720.0 KiB = 45.7 MiB of KV \(bf16\);"
            r" there are 8.0 MiB = 10 pages = 320 tokens; what would fit: max_model_len 320, or a KV memory of 45.7 MiB",
        ),
        (
            {"memory_limit_bytes": 300 << 20},
            "there are 270.0 MiB .300.0 MiB less 10% headroom.; a KV memory of .* would fit",
        ),
        ({"memory_limit_bytes": 100 << 20}, "raise the memory limit or use smaller weights"),
        ({"kv_memory_bytes": None}, "set the KV memory"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_arithmetic(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        plan_budget(SMOLLM2, replace(REQUEST, **change))


def test_a_sealed_format_has_open_pages_beside_the_sealed_ones() -> None:
    roomy = plan_budget(
        SMOLLM2, replace(REQUEST, precision=Precision(kv_cache="kivi4"), max_sessions=2, kv_memory_bytes=1 << 30)
    )
    assert roomy.open_pages == 2 * 5  # the newest 128 tokens and the page under way, of each session
    tight = plan_budget(
        SMOLLM2, replace(REQUEST, precision=Precision(kv_cache="kivi4"), max_sessions=64, kv_memory_bytes=64 << 20)
    )
    assert tight.open_pages == (32 << 20) // tight.open_page_bytes - 1  # of half of the memory
    small = plan_budget(
        SMOLLM2, replace(REQUEST, precision=Precision(kv_cache="kivi4"), max_model_len=256, kv_memory_bytes=6 << 20)
    )
    assert (small.open_pages, small.sessions_at_max_len) == (5, 1)
    for budget, memory in ((roomy, 1 << 30), (tight, 64 << 20), (small, 6 << 20)):
        assert memory - 2 * budget.page_bytes < budget.kv_bytes <= memory
        assert budget.sessions_of(160) == budget.open_pages // 5
        assert "open bf16 pages" in str(budget)


@pytest.mark.parametrize(("residual_tokens", "pages"), [(32, 2), (128, 5), (256, 9)])
def test_what_a_sealed_refusal_says_would_fit_does_fit(residual_tokens: int, pages: int) -> None:
    request = replace(
        REQUEST, precision=Precision(kv_cache="kivi2", residual_tokens=residual_tokens), kv_memory_bytes=1 << 20
    )
    with pytest.raises(BudgetError, match=rf"sealed pages \(kivi2\) and {pages} open ones") as refused:
        plan_budget(SMOLLM2, request)
    advice = str(refused.value).partition("a KV memory of ")[2]
    mib = float(advice.removesuffix(" MiB"))
    assert plan_budget(SMOLLM2, replace(request, kv_memory_bytes=int((mib + 0.1) * 2**20))).sessions_at_max_len >= 1


@given(st.integers(1 << 20, 1 << 40), st.integers(2, 8192), st.sampled_from(["bf16", "int8"]))
def test_what_a_refusal_says_would_fit_does_fit(kv_memory: int, max_len: int, kv_cache: str) -> None:
    request = replace(REQUEST, kv_memory_bytes=kv_memory, max_model_len=max_len, precision=Precision(kv_cache=kv_cache))
    try:
        budget = plan_budget(SMOLLM2, request)
    except BudgetError as error:
        advice = str(error).partition("what would fit: ")[2]
        if advice.startswith("max_model_len "):
            fits = int(advice.removeprefix("max_model_len ").partition(",")[0])
            assert plan_budget(SMOLLM2, replace(request, max_model_len=fits)).sessions_at_max_len >= 1
    else:
        assert budget.sessions_at_max_len >= 1
        assert budget.kv_bytes <= kv_memory


def test_the_block_size_and_the_head_count() -> None:
    """SmolLM2 by hand: 106,168,320 elements in matrices, a tied table of 49152 x 576, 61 norms of 576."""
    matrices, table, norms = 106_168_320, 49152 * 576, 61 * 576
    assert weights_bytes(SMOLLM2, "int4", block=32) == matrices * 5 // 8 + 2 * (table + norms)
    assert weights_bytes(SMOLLM2, "int4", block=128) == matrices * 17 // 32 + 2 * (table + norms)
    assert weights_bytes(SMOLLM2, "bf16", head="int8") == 2 * matrices + table + 4 * 49152 + 2 * norms
    assert weights_bytes(SMOLLM2, "fp32", head="int8") == 4 * matrices + table + 4 * 49152 + 4 * norms
    # Without ties the embedding stays 16-bit.
    saved = weights_bytes(LLAMA_70B, "int8") - weights_bytes(LLAMA_70B, "int8", head="int8")
    assert saved == 128256 * 8192 - 4 * 128256
    plain = plan_budget(SMOLLM2, REQUEST)
    small = plan_budget(SMOLLM2, replace(REQUEST, precision=Precision("int4", weight_block=32, head="int8")))
    assert small.weights_bytes == matrices * 5 // 8 + table + 4 * 49152 + 2 * norms < plain.weights_bytes


def test_a_head_or_block_that_is_not_ours_is_refused() -> None:
    with pytest.raises(UnknownFormatError, match="head 'int4' is unknown; use one of Same, int8"):
        weights_bytes(SMOLLM2, "bf16", head="int4")


def test_skipped_layers_count_at_sixteen_bits() -> None:
    request = replace(REQUEST, precision=Precision(kv_cache="int8", skip_layers=(0, 29)))
    budget = plan_budget(SMOLLM2, request)
    assert budget.kv_token_bytes == 28 * 3 * 136 + 2 * 3 * 256
    assert budget.page_bytes == 32 * budget.kv_token_bytes
    assert budget.pages == (64 << 20) // budget.page_bytes - 1
    with pytest.raises(SkipLayersError, match="expected layers to skip from 0 to 29, found 30"):
        plan_budget(SMOLLM2, replace(request, precision=Precision(kv_cache="int8", skip_layers=(30,))))
