"""What the cache of well-known models costs: every row of the research table, from the keys of their config.json."""

from typing import Any

import pytest

from kvroll_core.budget import Ask, BudgetError, BudgetRequest, Fit, ModelShape, ShapeError, plan_budget, reckon
from kvroll_core.precision.formats import KvFormat
from kvroll_core.precision.precision import Precision

GIB, MIB, KIB, GB, MB = 2**30, 2**20, 2**10, 1e9, 1e6
MILLION_TOKENS = 2**20


def config(
    layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        "max_position_embeddings": MILLION_TOKENS,
        **more,
    }


MLA = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
V3_EXPERTS = {
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
}
V4 = {"head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128, "sliding_window": 128}
QWEN_EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
GPT_OSS_EXPERTS = {"num_local_experts": 128, "experts_per_token": 4}
GPT_OSS_KINDS = ["sliding_attention", "full_attention"] * 18

MODELS = {
    "llama-3.1-8b": config(32, 4096, 32, 8, 14336, 128256, model_type="llama"),
    "llama-3.1-70b": config(80, 8192, 64, 8, 28672, 128256, model_type="llama"),
    "llama-3.1-405b": config(126, 16384, 128, 8, 53248, 128256, model_type="llama"),
    "qwen3-0.6b": config(28, 1024, 16, 8, 3072, 151936, head_dim=128, tie_word_embeddings=True, model_type="qwen3"),
    "qwen3-30b-a3b": config(48, 2048, 32, 4, 6144, 151936, head_dim=128, **QWEN_EXPERTS, model_type="qwen3_moe"),
    "qwen3-32b": config(64, 5120, 64, 8, 25600, 151936, head_dim=128, model_type="qwen3"),
    "gpt-oss-120b": config(
        36,
        2880,
        64,
        8,
        2880,
        201088,
        head_dim=64,
        sliding_window=128,
        layer_types=GPT_OSS_KINDS,
        num_local_experts=128,
        experts_per_token=4,
        model_type="gpt_oss",
    ),
    "gemma-3-27b": {
        "text_config": config(
            62, 5376, 32, 16, 21504, 262208, head_dim=128, sliding_window=1024, model_type="gemma3_text"
        )
    },
    "deepseek-v3": config(61, 7168, 128, 128, 18432, 129280, **MLA, **V3_EXPERTS, model_type="deepseek_v3"),
    "deepseek-v3.2": config(
        61,
        7168,
        128,
        128,
        18432,
        129280,
        **MLA,
        **V3_EXPERTS,
        index_head_dim=128,
        index_n_heads=64,
        model_type="deepseek_v32",
    ),
    "deepseek-v4-pro": config(
        61, 7168, 128, 1, 2048, 129280, **V4, compress_ratios=[128, 4] * 30 + [128, 0], model_type="deepseek_v4"
    ),
    "deepseek-v4-flash": config(
        43, 4096, 64, 1, 2048, 129280, **V4, compress_ratios=[0, 0] + [4, 128] * 20 + [4], model_type="deepseek_v4"
    ),
    "smollm2-135m": config(30, 576, 9, 3, 1536, 49152, tie_word_embeddings=True, model_type="llama"),
}


def cost(name: str, kv: str, tokens: int, sessions: int = 1) -> Fit:
    shape = ModelShape.from_config(MODELS[name])
    return reckon(shape, Ask("bf16", kv, sessions, tokens, residual_tokens=0, weights_bytes=0))


@pytest.mark.parametrize(
    ("name", "token_kib", "fleet_gib"),
    [
        ("llama-3.1-8b", 128, 64),
        ("llama-3.1-70b", 320, 160),
        ("llama-3.1-405b", 504, 252),
        ("qwen3-0.6b", 112, 56),
        ("qwen3-30b-a3b", 96, 48),
        ("qwen3-32b", 256, 128),
        ("smollm2-135m", 22.5, 11.25),
    ],
)
def test_full_attention(name: str, token_kib: float, fleet_gib: float) -> None:
    found = cost(name, "bf16", 4096, 128)
    assert found.kv_bytes_per_token == token_kib * KIB
    assert found.kv_bytes_total == fleet_gib * GIB
    assert found.kv_bytes_per_session == fleet_gib * GIB / 128


@pytest.mark.parametrize(
    ("kv", "fleet_gib"),
    # 80 is fp8 with one scale for a tensor: kvroll's has one for each token and head, 2d + 8 bytes for 2d.
    [("bf16", 160), ("fp8_e4m3", 80 * 264 / 256), ("kivi4", 50), ("kivi2", 30)],
)
def test_llama_70b_in_fewer_bits(kv: str, fleet_gib: float) -> None:
    assert cost("llama-3.1-70b", kv, 4096, 128).kv_bytes_total == fleet_gib * GIB


def test_a_format_of_somebody_else_is_costed_by_the_same_formula() -> None:
    four_bits_a_token_head = KvFormat("int4_per_token_head", 4, 4, lambda d: d + 8.0, False)
    token = four_bits_a_token_head.token_bytes(layers=80, kv_heads=8, head_dim=128)
    assert token * 4096 * 128 == 42.5 * GIB


def test_without_grouped_queries_llama_70b_costs_eight_times_as_much() -> None:
    every_head = ModelShape.from_config(MODELS["llama-3.1-70b"] | {"num_key_value_heads": 64})
    one_head = ModelShape.from_config(MODELS["llama-3.1-70b"] | {"num_key_value_heads": 1})
    found = [reckon(shape, Ask("bf16", "bf16", 1, 4096)).kv_bytes_total for shape in (every_head, one_head)]
    assert found == [8 * 1.25 * GIB, 1.25 * GIB / 8]


@pytest.mark.parametrize(
    ("name", "kv", "tokens", "session_bytes"),
    [
        ("gpt-oss-120b", "bf16", 4096, 156 * MB),
        ("gpt-oss-120b", "bf16", 32768, 1.21 * GB),
        ("gpt-oss-120b", "bf16", 131072, 4.84 * GB),
        ("gemma-3-27b", "bf16", 4096, 0.77 * GB),
        ("gemma-3-27b", "bf16", 32768, 3.12 * GB),
        ("gemma-3-27b", "bf16", 131072, 11.2 * GB),
        ("deepseek-v3", "bf16", 4096, 288 * MB),
        ("deepseek-v3", "fp8_e4m3", 4096, 39.1 * KIB * 4096),
        ("deepseek-v3.2", "bf16", MILLION_TOKENS, 83.9 * GIB),
        ("deepseek-v4-pro", "bf16", MILLION_TOKENS, 9.62 * GIB),
        ("deepseek-v4-pro", "fp8_e4m3", MILLION_TOKENS, 5.39 * GIB),
        ("deepseek-v4-pro", "fp8_e4m3", 4096, 27.1 * MB),
        ("deepseek-v4-pro", "fp8_e4m3", 32768, 185 * MB),
        ("deepseek-v4-flash", "bf16", MILLION_TOKENS, 6.72 * GIB),
        ("deepseek-v4-flash", "fp8_e4m3", MILLION_TOKENS, 3.76 * GIB),
    ],
)
def test_windows_latents_and_compression(name: str, kv: str, tokens: int, session_bytes: float) -> None:
    assert cost(name, kv, tokens).kv_bytes_per_session == pytest.approx(session_bytes, rel=0.004)


@pytest.mark.parametrize("tokens", [1, 5, 127, 128, 129, 4096, 5000])
@pytest.mark.parametrize("name", ["deepseek-v4-pro", "deepseek-v4-flash"])
def test_deepseek_v4_token_by_token(name: str, tokens: int) -> None:
    """vLLM's `fp8_ds_mla`: 448 fp8 dimensions, 8 bytes of scales and 64 of 16 bits a state, 128 fp8 and one fp32 scale an indexer key. A
    layer begins a state at every 4th or 128th token and keeps one for each of its newest 128 tokens.
    """
    state, key = 448 + 8 + 2 * 64, 128 + 4
    kept = 0
    for ratio in MODELS[name]["compress_ratios"][: MODELS[name]["num_hidden_layers"]]:
        kept += state * sum(tokens - position <= 128 for position in range(tokens))
        kept += sum(state + key * (ratio == 4) for position in range(tokens) if ratio and position % ratio == 0)
    assert cost(name, "fp8_e4m3", tokens).kv_bytes_stored == kept


def test_what_windows_save() -> None:
    for name, layers_kib, tokens, times in (
        ("gpt-oss-120b", 72, 131072, 2.0),
        ("gemma-3-27b", 496, 32768, 5.3),
        ("gemma-3-27b", 496, 131072, 6.0),
    ):
        text = MODELS[name].get("text_config", MODELS[name])
        full = {k: v for k, v in text.items() if k not in ("layer_types", "sliding_window")} | {"model_type": "llama"}
        found = reckon(ModelShape.from_config(full), Ask("bf16", "bf16", 1, tokens))
        assert found.kv_bytes_per_token == layers_kib * KIB
        assert found.kv_bytes_total / cost(name, "bf16", tokens).kv_bytes_total == pytest.approx(times, abs=0.05)


def test_deepseek_v3_a_token() -> None:
    assert cost("deepseek-v3", "bf16", 4096).kv_bytes_per_token == 61 * 576 * 2
    assert cost("deepseek-v3", "fp8_e4m3", 4096).kv_bytes_per_token == 61 * 656  # vLLM's fp8_ds_mla
    assert cost("deepseek-v3", "bf16", 4096, 128).kv_bytes_total == pytest.approx(34.3 * GIB, rel=0.002)


@pytest.mark.parametrize(
    ("name", "billions"),
    # As the model cards say; DeepSeek-V3 without its prediction layer.
    [
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-405b", 405.9),
        ("qwen3-0.6b", 0.596),
        ("qwen3-30b-a3b", 30.5),
        ("gpt-oss-120b", 116.8),
        ("deepseek-v3", 671.0),
    ],
)
def test_parameters(name: str, billions: float) -> None:
    shape = ModelShape.from_config(MODELS[name])
    assert (shape.matrix_elements + shape.plain_elements) / 1e9 == pytest.approx(billions, rel=0.002)


def test_a_token_uses_few_experts_and_a_batch_reads_nearly_all() -> None:
    shape = ModelShape.from_config(MODELS["qwen3-30b-a3b"])
    # 3.3 billion active parameters by the model card, of which the head and the embedding are 0.6.
    assert shape.token_flops / 2e9 == pytest.approx(3.03, rel=0.02)
    assert shape.read_elements(1) == pytest.approx(2.72e9, rel=0.02)
    assert shape.read_elements(1) < shape.read_elements(16) < shape.read_elements(256) < shape.matrix_elements
    assert shape.read_elements(512) == pytest.approx(shape.matrix_elements, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("qwen3-32b", {"layer_types": ["linear_attention"] * 64}, "layer_types: expected full_attention, sliding_attention,"),
        ("qwen3-32b", {"layer_types": ["full_attention"]}, "expected one for each of 64 layers, found 1"),
        ("gpt-oss-120b", {"layer_types": ["sliding_attention"] * 36, "sliding_window": None}, "expected sliding_window beside it"),
        ("llama-3.1-70b", {"num_kv_shared_layers": 2}, "llama does not read num_kv_shared_layers"),
        ("deepseek-v4-pro", {"compress_ratios": [2] * 61}, "compress_ratios: expected 0, 1, 4 or 128 for each of 61 layers"),
        ("deepseek-v4-pro", {"compress_ratios": [4] * 3}, "for 3; other compressed layouts are not counted"),
        ("llama-3.1-70b", {"hidden_size": None}, "expected hidden_size, as in the config.json"),
        ("llama-3.1-70b", {"kv_lora_rank": 512}, "llama does not read kv_lora_rank: such keys tell of another cache"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_refused_by_its_key(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ModelShape.from_config(MODELS[name] | change)


def test_experts_in_some_layers_alone_leave_the_weights_uncounted() -> None:
    shape = ModelShape.from_config(MODELS["qwen3-30b-a3b"] | {"decoder_sparse_step": 2})
    with pytest.raises(ShapeError, match="the weights of qwen3_moe are not counted"):
        reckon(shape, Ask("bf16", "bf16", 1, 4096))


def test_the_weights_of_compressed_attention_must_be_said() -> None:
    shape = ModelShape.from_config(MODELS["deepseek-v4-pro"])
    with pytest.raises(ShapeError, match="say their size: --weights-bytes"):
        reckon(shape, Ask("bf16", "bf16", 1, 4096))
    assert reckon(shape, Ask("bf16", "bf16", 1, 4096, weights_bytes=10)).weights_bytes == 10


def test_a_worker_is_not_budgeted_for_attention_that_it_does_not_run() -> None:
    request = BudgetRequest(Precision(), 4096, 8, 256, kv_memory_bytes=GIB)
    for name in ("deepseek-v3", "deepseek-v4-flash"):
        with pytest.raises(BudgetError, match=r"latent attention \(MLA\), which it does not run"):
            plan_budget(ModelShape.from_config(MODELS[name]), request)
    assert plan_budget(ModelShape.from_config(MODELS["qwen3-0.6b"]), request).pages == 291


def test_kivi_needs_heads() -> None:
    with pytest.raises(ValueError, match=r"KV dtype kivi4 .* latent attention .* use one of fp32"):
        cost("deepseek-v3", "kivi4", 4096)


@pytest.mark.parametrize(
    ("family", "change", "windows"),
    [
        ("mistral", {"sliding_window": 4096}, (4096,) * 80),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": False}, ()),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 78}, (0,) * 78 + (4096,) * 2),
        ("mistral", {"sliding_window": None}, ()),
        ("cohere2", {"sliding_window": 512, "sliding_window_pattern": 4}, (512, 512, 512, 0) * 20),
        ("exaone4", {"sliding_window": 512, "sliding_window_pattern": "LLLG"}, (512, 512, 512, 0) * 20),
        ("afmoe", {"sliding_window": 512, "global_attn_every_n_layers": 2}, (512, 0) * 40),
        ("llama4_text", {"attention_chunk_size": 512, "no_rope_layer_interval": 4}, (512, 512, 512, 0) * 20),
        ("llama", {"layer_types": ["full_attention"] * 80}, ()),
    ],
)  # fmt: skip
def test_windows_of_each_family(family: str, change: dict[str, Any], windows: tuple[int, ...]) -> None:
    found = ModelShape.from_config(MODELS["llama-3.1-70b"] | {"model_type": family} | change)
    assert found.windows == windows
