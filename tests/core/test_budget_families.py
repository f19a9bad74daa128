"""The list of families: what it counts, what it refuses by name, and what the configurations of all of them may be damaged into."""

from typing import Any

import pytest

from kvroll_bench.config_fuzz import fuzzed
from kvroll_bench.engine_logs import LLAMA_3_8B, PRINTED, Printed
from kvroll_core.budget import (
    FAMILIES,
    Ask,
    ModelShape,
    Ranks,
    ShapeError,
    SplitError,
    auto_kv_cache,
    read_quantised,
    reckon,
)
from kvroll_core.budget.families import ENCODER_DECODERS, ENCODERS, REFUSED

QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "vocab_size": 151936, "intermediate_size": 5120, "linear_num_value_heads": 32, "full_attention_interval": 4,
    "max_position_embeddings": 262144,
}  # fmt: skip
GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", "num_hidden_layers": 60, "hidden_size": 5376, "num_attention_heads": 32, "num_key_value_heads": 16,
    "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 4, "attention_k_eq_v": True, "sliding_window": 1024,
    "vocab_size": 262144, "intermediate_size": 21504, "max_position_embeddings": 262144,
}  # fmt: skip


def cost(config: dict[str, Any], tokens: int = 131072, **more: Any) -> Any:
    return reckon(ModelShape.from_config(config), Ask("bf16", "bf16", 1, tokens, weights_bytes=1, **more))


def test_there_are_as_many_families_as_people_have() -> None:
    assert len(FAMILIES) >= 60
    for family in FAMILIES.values():
        assert family.source
        assert family.attention
    assert not FAMILIES.keys() & (REFUSED.keys() | ENCODERS | ENCODER_DECODERS)


def test_an_interval_says_which_layers_look_back() -> None:
    found = cost(QWEN3_NEXT)
    assert found.kv_bytes_per_token == 12 * 2 * 256 * 4 == 24576
    state = 36 * 2 * (3 * (2 * 16 * 128 + 32 * 128) + 32 * 128 * 128)
    assert found.kv_bytes_constant_per_session == state
    assert found.kv_bytes_stored == 24576 * 131072 + state
    listed = QWEN3_NEXT | {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12}
    assert cost(listed).kv_bytes_stored == found.kv_bytes_stored


def test_heads_of_two_sizes_and_windows() -> None:
    found = cost(GEMMA4)
    assert found.kv_bytes_per_token == 10 * 4 * 512 * 4
    assert found.kv_bytes_constant_per_session == 50 * 16 * 256 * 4 * 1024
    assert [(w.window_tokens, w.layers) for w in found.windows] == [(1024, 50)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"}, "model_type bert is an encoder: it keeps no KV cache"),
        ({"model_type": "t5"}, "model_type t5 is an encoder-decoder"),
        ({"model_type": "rwkv"}, "model_type rwkv is not counted: its state"),
        ({"model_type": "gemma3", "text_config": {}}, "gemma3 holds its sizes in text_config: expected them there"),
        ({"model_type": "qwen9"}, "model_type 'qwen9' is unknown.*keys seen: .*head_dim.*--assume full-attention"),
        ({"model_type": None}, "expected model_type, or an architecture that we know"),
        ({"model_type": "llama", "global_head_dim": 512}, "llama does not read .*global_head_dim"),
        ({"model_type": "llama", "linear_num_value_heads": 32}, "llama does not read .*linear_num_value_heads"),
    ],
)
def test_what_is_not_known_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    llama = {k: v for k, v in GEMMA4.items() if "global" not in k}
    with pytest.raises(ShapeError, match=message):
        ModelShape.from_config(llama | change)


def test_an_assumption_is_marked_and_bounds_the_windows() -> None:
    bound = ModelShape.from_config(GEMMA4 | {"model_type": "gemma9"}, "full-attention")
    assert bound.facts.assumed == "full-attention"
    found = reckon(bound, Ask("bf16", "bf16", 1, 131072, weights_bytes=1))
    assert found.kv_bytes_stored == 60 * 16 * 256 * 4 * 131072
    with pytest.raises(ShapeError, match="is no decoder-only model"):
        ModelShape.from_config(GEMMA4 | {"model_type": "bert"}, "full-attention")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 0}, "head_dim: expected a whole number from 1 to 65536, found 0"),
        (
            {"num_attention_heads": 30, "num_key_value_heads": 30},
            "hidden_size 4096 is no multiple of num_attention_heads 30",
        ),
        ({"num_hidden_layers": -3}, "num_hidden_layers: expected a whole number from 1 to 4096, found -3"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers: expected a whole number .* found '32'"),
        ({"num_hidden_layers": True}, "found True"),
        ({"num_hidden_layers": float("nan")}, "found nan"),
        ({"num_hidden_layers": 10**30}, "found 1000000"),
        ({"num_key_value_heads": 5}, "num_attention_heads 32 is not a multiple of num_key_value_heads 5"),
        (
            {"model_type": "mistral", "sliding_window": "4096"},
            "sliding_window: expected a whole number .* found '4096'",
        ),
        ({"model_type": ["llama"]}, "model_type: expected a word"),
        ({"text_config": [1]}, "text_config: expected an object"),
    ],
)
def test_a_value_that_cannot_be_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ModelShape.from_config(LLAMA_3_8B | change)


def test_damaged_configurations_get_a_sentence() -> None:
    found = fuzzed(1500, 7)
    assert (found.tracebacks, found.numbers_for_unknown, found.impossible) == (0, 0, 0), found.examples
    assert found.answered > 100
    assert found.refused > 100


@pytest.mark.parametrize("printed", PRINTED, ids=lambda p: f"{p.engine} {p.said:g}")
def test_engines_printed_the_same(printed: Printed) -> None:
    assert printed.source.startswith("https://github.com/")
    assert printed.sizes_from
    assert f"{printed.said:g}" in printed.line.replace(",", ""), "the figure is one of the line"
    assert printed.error <= 0.01


def test_enough_rows_of_every_engine() -> None:
    assert len({(p.source, p.line) for p in PRINTED}) == len(PRINTED) >= 12
    assert {p.engine for p in PRINTED} == {"vllm", "sglang", "llama.cpp"}


def test_ranks_share_heads_and_never_a_latent() -> None:
    whole = cost(LLAMA_3_8B).kv_bytes_per_token
    for tensor, share in ((1, 1), (2, 2), (8, 8), (16, 8), (32, 8)):
        assert cost(LLAMA_3_8B, ranks=Ranks(tensor=tensor)).rank_kv_bytes_per_token == whole / share
    assert cost(LLAMA_3_8B, ranks=Ranks(pipeline=3)).rank_kv_bytes_per_token == whole * 11 / 32
    v32 = next(p.config for p in PRINTED if p.config["model_type"] == "deepseek_v32")
    assert cost(v32, ranks=Ranks(tensor=8)).rank_kv_bytes_per_token == 61 * 2 * (576 + 128)
    with pytest.raises(SplitError, match="32 attention heads do not divide by 5"):
        cost(LLAMA_3_8B, ranks=Ranks(tensor=5))
    state = cost(QWEN3_NEXT).kv_bytes_constant_per_session
    split = ModelShape.from_config(QWEN3_NEXT)
    assert (
        reckon(split, Ask("bf16", "bf16", 1, 32, weights_bytes=1, ranks=Ranks(tensor=2))).rank_kv_bytes_per_session
        < state
    )


@pytest.mark.parametrize(
    ("quantised", "name", "element_bytes", "kv_cache"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 1 + 4 / 16384, "bf16"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq-int4", 0.5 + 2.5 / 128, "bf16"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "gptq-int4", 0.5, "bf16"),
        ({"quant_method": "mxfp4"}, "mxfp4", 0.53125, "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "nvfp4", 0.5625, "fp8_e4m3"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
             "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
            "compressed-tensors-fp8", 1.0, "fp8_e4m3",
        ),
    ],
)  # fmt: skip
def test_a_checkpoints_own_precision(quantised: dict[str, Any], name: str, element_bytes: float, kv_cache: str) -> None:
    for config in (LLAMA_3_8B | {"quantization_config": quantised},
                   {"model_type": "x", "text_config": {**LLAMA_3_8B, "quantization_config": quantised}}):  # fmt: skip
        found = read_quantised(config)
        assert found is not None
        assert found.name == name
        assert found.element_bytes == pytest.approx(element_bytes)
        assert auto_kv_cache(config, found)[0] == kv_cache
    with pytest.raises(ShapeError, match="quant_method 'magic' is not counted"):
        read_quantised({"quantization_config": {"quant_method": "magic"}})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "family", ["llama", "gemma3n_text", "deepseek_v3", "qwen3_next", "jamba", "falcon_h1", "mimo_v2_flash", "lfm2"]
)
def test_transformers_keeps_the_same(family: str) -> None:
    from kvroll_bench.cache_oracle import compared

    found = compared(family)
    assert found.equal, found
