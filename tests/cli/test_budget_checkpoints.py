"""`kvroll budget` on checkpoints as people have them: mixtures, parts unquantised, towers, prediction layers, and unknown families."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Kvroll = Callable[..., Result]
LLAMA_8B: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT_OSS_20B: dict[str, Any] = {
    "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088, "max_position_embeddings": 131072, "num_local_experts": 32,
    "experts_per_token": 4, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12,
    "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
}  # fmt: skip
QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "vocab_size": 151936, "intermediate_size": 5120, "linear_num_value_heads": 32, "full_attention_interval": 4,
    "max_position_embeddings": 262144,
}  # fmt: skip
FLAT: dict[str, Any] = {
    "model_type": "my_model", "num_hidden_layers": 60, "hidden_size": 5376, "num_attention_heads": 32, "num_key_value_heads": 16,
    "head_dim": 256, "global_head_dim": 512, "sliding_window": 1024, "window_pattern": 6, "intermediate_size": 21504,
    "vocab_size": 262144, "max_position_embeddings": 131072,
}  # fmt: skip
HQQ = {"quant_method": "hqq", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}


@pytest.fixture
def asked(kvroll: Kvroll, tmp_path: Path) -> Callable[..., Result]:
    def ask(config: dict[str, Any], *arguments: str) -> Result:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return kvroll("budget", "--model", str(tmp_path), *arguments)

    return ask


def document(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_token_reads_few_experts_and_all_of_what_stays_16_bit(asked: Callable[..., Result]) -> None:
    """gpt-oss-20b by hand: 4 of 32 experts in MXFP4, attention, routers, embedding and head in 16 bits."""
    found = document(asked(GPT_OSS_20B, "-o", "json"))
    expert = 3 * 2880 * 2880 * (0.5 + 1 / 32)
    attention = 2880 * 64 * (2 * 64 + 2 * 8)
    plain = 2 * 201088 * 2880 + 49 * 2880 + 24 * 2880 * 32
    assert found["weights_bytes"] == pytest.approx(24 * (32 * expert + 2 * attention) + 2 * plain, rel=1e-6)
    assert found["weights_bytes_active_per_token"] == pytest.approx(
        24 * (4 * expert + 2 * attention) + 2 * plain, rel=1e-6
    )
    assert [(w["window_tokens"], w["layers"]) for w in found["windows"]] == [(128, 12)]
    assert found["kv_bytes_constant_per_session"] == 12 * 2 * 8 * 64 * 2 * 128


def test_an_8_bit_cache_is_told_with_the_scales_of_both_kinds(asked: Callable[..., Result]) -> None:
    found = document(asked(LLAMA_8B, "--kv", "fp8_e4m3", "--skip-layers", "0", "-o", "json"))
    assert found["kv_bytes_per_token"] == 31 * 8 * (2 * 128 + 8) + 8 * 4 * 128
    assert found["kv_bytes_per_token_one_scale"] == 31 * 8 * 2 * 128 + 8 * 4 * 128
    assert "with one for a tensor (vLLM, SGLang): 64.0 KiB a token" in asked(LLAMA_8B, "--kv", "fp8_e4m3").stdout
    assert document(asked(LLAMA_8B, "-o", "json"))["kv_bytes_per_token_one_scale"] is None


def test_modules_that_a_checkpoint_does_not_quantise_are_told(asked: Callable[..., Result]) -> None:
    quantised = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate", "model.norm"]}
    assert document(asked(LLAMA_8B | {"quantization_config": quantised}, "-o", "json"))["model"]["notes"] == []
    quantised["modules_to_not_convert"] = [
        "lm_head",
        "model.layers.0.self_attn.q_proj",
        "model.layers.1.self_attn.q_proj",
    ]
    notes = document(asked(LLAMA_8B | {"quantization_config": quantised}, "-o", "json"))["model"]["notes"]
    assert notes[0].startswith("quantization_config leaves 2 modules unquantised (model.layers.0.self_attn.q_proj")


def test_a_method_that_we_do_not_count_needs_the_size_of_the_weights_and_no_more(
    asked: Callable[..., Result], capfd: pytest.CaptureFixture[str]
) -> None:
    assert asked(LLAMA_8B | {"quantization_config": HQQ}).exit_code == 2
    assert "quant_method 'hqq' is not counted" in capfd.readouterr().err
    found = document(asked(LLAMA_8B | {"quantization_config": HQQ}, "--weights-bytes", "5GB", "-o", "json"))
    assert (found["weights_bytes"], found["kv_cache"]) == (5_000_000_000, "bf16")
    assert found["model"]["notes"][0].startswith(
        "not read, a KV scheme in it neither: quantization_config: quant_method 'hqq'"
    )


@pytest.mark.parametrize(
    "key", ["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "num_mtp_layers"]
)
def test_prediction_layers_are_told_under_every_name(asked: Callable[..., Result], key: str) -> None:
    for config in (LLAMA_8B | {key: 1}, {"model_type": "x", "text_config": LLAMA_8B | {key: 1}}):
        assert document(asked(config, "-o", "json"))["model"]["notes"] == [
            f"{key} 1: prediction layers (MTP), their KV and weights are not counted; speculative decoding adds them"
        ]
    assert document(asked(LLAMA_8B | {key: 0}, "-o", "json"))["model"]["notes"] == []


def test_a_tower_is_told_and_the_dtype_of_its_wrapper_counts(asked: Callable[..., Result]) -> None:
    text = {k: v for k, v in LLAMA_8B.items() if k != "torch_dtype"} | {"model_type": "mistral", "sliding_window": None}
    found = document(
        asked(
            {"model_type": "mistral3", "vision_config": {"a": 1}, "text_config": text, "dtype": "float16"}, "-o", "json"
        )
    )
    assert (found["kv_cache"], found["kv_cache_source"]) == ("fp16", "auto: dtype float16")
    assert found["model"]["notes"] == [
        "vision_config: the tower's weights are not counted; those of a folder with its files are"
    ]


def test_what_a_rule_said_of_the_layers_is_told(asked: Callable[..., Result]) -> None:
    found = document(asked(QWEN3_NEXT, "-o", "json"))
    assert found["kv_bytes_per_token"] == 24576
    assert (
        "layers: 12 full_attention, 36 linear_attention: by the rule of qwen3_next, the file has no layer_types"
        in found["model"]["derived"]
    )
    listed = QWEN3_NEXT | {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12}
    assert not [
        line for line in document(asked(listed, "-o", "json"))["model"]["derived"] if line.startswith("layers:")
    ]


def test_more_tokens_than_the_model_knows_are_told(asked: Callable[..., Result]) -> None:
    assert document(asked(LLAMA_8B, "--tokens", "8192", "-o", "json"))["model"]["notes"] == []
    notes = document(asked(LLAMA_8B, "--tokens", "8193", "-o", "json"))["model"]["notes"]
    assert notes == ["8193 tokens are more than the 8192 positions that the model knows"]


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        (FLAT, (), "model_type 'my_model' is unknown: its cache is not counted; keys seen: global_head_dim, head_dim"),
        (LLAMA_8B | {"model_type": "bert"}, (), "model_type bert is an encoder"),
        (LLAMA_8B | {"model_type": "bert"}, ("--assume", "full-attention"), "bert is no decoder-only model"),
        (LLAMA_8B | {"head_dim": 0}, (), "head_dim: expected a whole number from 1"),
        (LLAMA_8B | {"num_attention_heads": 30, "num_key_value_heads": 30}, (), "hidden_size 4096 is no multiple"),
        (LLAMA_8B | {"num_hidden_layers": -3}, (), "num_hidden_layers: expected a whole number"),
        (LLAMA_8B | {"num_hidden_layers": "32"}, (), "found '32'"),
        (LLAMA_8B | {"model_type": "mistral", "sliding_window": "4096"}, (), "found '4096'"),
        (LLAMA_8B | {"torch_dtype": "int3"}, (), "torch_dtype: expected one of bfloat16"),
        (LLAMA_8B, ("--gpu-memory-utilization", "0.9"), "expected --device-memory beside --gpu-memory-utilization"),
        (LLAMA_8B, ("--headroom", "0.2"), "expected --device-memory beside --headroom"),
        (LLAMA_8B, ("--pp", "33"), "32 layers do not divide into 33 pipeline stages"),
        (LLAMA_8B, ("--kv-memory", "abc"), "expected a quantity of bytes"),
        (LLAMA_8B, ("--kv-memory", "0"), "expected a quantity of bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_sentence_and_2(
    asked: Callable[..., Result],
    capfd: pytest.CaptureFixture[str],
    config: dict[str, Any],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    done = asked(config, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    said = capfd.readouterr().err
    assert message in said
    assert said.startswith("kvroll: ")
    assert said.count("\n") == 1


def test_without_a_network_the_hub_says_what_else_to_name(
    kvroll: Kvroll, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert kvroll("budget", "--model", "hf://org/name").exit_code == 1
    assert "without a network name a folder with the model's config.json" in capfd.readouterr().err
