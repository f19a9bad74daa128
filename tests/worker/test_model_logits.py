"""Every family against `transformers`: random weights, fp32 weights and KV, every position's logits as near to float64 as the library's own
float32 is.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from kvroll_worker.models.smollm2 import ensure_model
from kvroll_worker.models.spec import load_spec
from kvroll_worker.models.tokenizer import Tokenizer
from tests.worker.tiny_model import MakeModel, prompt_of
from tests.worker.transformers_oracle import check_against_float64, our_logits, their_logits

pytestmark = pytest.mark.slow  # importing transformers takes ten seconds
Config = dict[str, Any]
FAMILIES: dict[str, Config] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
}
# head_dim, query heads, KV heads: GQA 1, 3, 4, 8, odd counts of heads
SHAPES = [(64, 3, 3), (64, 9, 3), (80, 5, 5), (96, 4, 1), (128, 8, 1), (256, 3, 1)]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
ROPES: dict[str, Config] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": YARN,
    "yarn-of-the-model's-length": {"rope_type": "yarn", "factor": 2.0},
    "yarn-mscale": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.5},
    "yarn-attention-factor": {**YARN, "attention_factor": 1.3},
    "yarn-betas": {**YARN, "beta_fast": 8.0, "beta_slow": 2.0},
    "yarn-not-truncated": {**YARN, "truncate": False},
}
MIXED = {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}
SINKS = {"attention_sinks": True}
QUICK: dict[str, Config] = {
    "llama": FAMILIES["llama"],
    "mistral-window": {**FAMILIES["mistral"], "sliding_window": 31},
    "qwen2": FAMILIES["qwen2"],
    "qwen3-yarn-mixed-windows": {
        **FAMILIES["qwen3"],
        **MIXED,
        "num_hidden_layers": 3,
        "sliding_window": 33,
        "rope_scaling": YARN,
    },
}


def cases() -> dict[str, Config]:
    found: dict[str, Config] = {}
    for family, base in FAMILIES.items():
        for dim, heads, kv_heads in SHAPES:
            sizes: Config = {"head_dim": dim, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
            # Smaller weights where more of them are summed: with 0.2, transformers' fp32 is 1.5e-4 off its own fp64.
            sizes |= {"hidden_size": 16 * heads, "initializer_range": 0.1}
            found[f"{family}-{dim}x{heads}/{kv_heads}"] = {**base, **sizes}
    for window in (1, 31, 32, 33):
        one = {"sliding_window": window, "num_hidden_layers": 3}
        found[f"mistral-window-{window}"] = {**FAMILIES["mistral"], **one}
        found[f"qwen2-window-{window}"] = {
            **FAMILIES["qwen2"],
            **one,
            "use_sliding_window": True,
            "max_window_layers": 1,
        }
        found[f"qwen3-window-{window}"] = {**FAMILIES["qwen3"], **one, **MIXED}
        found[f"mistral-window-{window}-sinks"] = {**FAMILIES["mistral"], **one, **SINKS}
    for family in ("llama", "qwen3"):
        for name, rope in ROPES.items():
            found[f"{family}-{name}"] = {**FAMILIES[family], "rope_scaling": rope}
        found[f"{family}-attention-bias"] = {**FAMILIES[family], "attention_bias": True}
        found[f"{family}-sinks"] = {**FAMILIES[family], **SINKS}
    found["llama-every-bias-untied"] = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}
    found["qwen2-window-off"] = {**FAMILIES["qwen2"], "sliding_window": 8, "max_window_layers": 0}
    return found


def check(folder: Path, ops_name: str) -> None:
    ids = prompt_of(70)
    check_against_float64(folder, ids, our_logits(folder, ids, weights="fp32", kv="fp32", ops_name=ops_name))


@pytest.mark.parametrize("config", QUICK.values(), ids=QUICK.keys())
def test_a_family_is_that_of_transformers(make_model: MakeModel, ops_name: str, config: Config) -> None:
    check(make_model(**config, torch_dtype="float32"), ops_name)


@pytest.mark.parametrize("config", cases().values(), ids=cases().keys())
def test_every_case_is_that_of_transformers(make_model: MakeModel, config: Config) -> None:
    check(make_model(**config, torch_dtype="float32"), "native")


def test_a_coarser_forward_pass_is_caught(make_model: MakeModel) -> None:
    folder, ids = make_model(**FAMILIES["llama"], torch_dtype="float32"), prompt_of(70)
    coarser = our_logits(folder, ids, weights="fp32", kv="bf16", ops_name="native")
    with pytest.raises(AssertionError, match="times theirs"):
        check_against_float64(folder, ids, coarser)


@pytest.mark.model
def test_smollm2_is_that_of_transformers() -> None:
    folder = ensure_model()
    text = "The capital of France is Paris. A fishing boat that draws nine feet cannot cross the bar at low tide."
    ids = Tokenizer(folder, load_spec(folder)).encode(text)
    # Logits reach 30. The library's float32 is 6e-5 off at its worst, ours 3e-5 (1.7e-4 when K was one chain).
    check_against_float64(folder, ids, our_logits(folder, ids, weights="fp32", kv="fp32", ops_name="native"))
    expected = their_logits(folder, ids)
    rounded = our_logits(folder, ids, weights="bf16", kv="bf16", ops_name="native")
    assert torch.nn.functional.cosine_similarity(rounded, expected, dim=1).min() > 0.9999
