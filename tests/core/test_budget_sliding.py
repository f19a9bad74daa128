"""Windows are read as transformers' configuration classes read them, family by family, also where a word is absent."""

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroll_core.budget import FULL, SLIDING, ModelShape

LAYERS = 4
ALL_LAYERS = {"mistral": "MistralConfig", "mixtral": "MixtralConfig", "qwen3_moe": "Qwen3MoeConfig"}
BY_LAYER = {"qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "qwen2_moe": "Qwen2MoeConfig"}
lengths = st.sampled_from([None, 8, 4096])
words = st.fixed_dictionaries(
    {},
    optional={"sliding_window": lengths, "use_sliding_window": st.booleans(), "max_window_layers": st.integers(0, 5)},
)
kinds = st.none() | st.lists(st.sampled_from([FULL, SLIDING]), min_size=LAYERS, max_size=LAYERS)


def theirs(name: str, config: dict[str, Any]) -> Any:
    """Their configuration object; imported late, because that takes seconds."""
    return getattr(import_module("transformers"), name)(num_hidden_layers=LAYERS, **config)


def found(family: str, config: dict[str, Any]) -> tuple[int, ...]:
    return layer_windows({"model_type": family, **config}) or (0,) * LAYERS


def layer_windows(config: dict[str, Any]) -> tuple[int, ...]:
    sizes = {
        "num_hidden_layers": LAYERS,
        "hidden_size": 64,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 9,
    }
    return ModelShape.from_config({**sizes, **config}).windows


@pytest.mark.parametrize("family", ALL_LAYERS)
@pytest.mark.slow
@settings(deadline=None)
@given(config=words)
def test_one_window_on_every_layer(family: str, config: dict[str, Any]) -> None:
    if family == "mixtral":  # its class keeps a word that it does not know; nothing of it looks there
        config = {k: v for k, v in config.items() if k == "sliding_window"}
    window = theirs(ALL_LAYERS[family], config).sliding_window
    assert found(family, config) == (window or 0,) * LAYERS


@pytest.mark.parametrize("family", BY_LAYER)
@pytest.mark.slow
@settings(deadline=None)
@given(config=words, listed=kinds)
def test_a_window_by_layer(family: str, config: dict[str, Any], listed: list[str] | None) -> None:
    if listed is not None:
        config = {**config, "layer_types": listed}
    read = theirs(BY_LAYER[family], config)
    if listed is not None and SLIDING in listed and not read.sliding_window:
        with pytest.raises(ValueError, match="expected sliding_window beside it"):
            found(family, config)
        return
    # Qwen2-MoE's class names sliding layers beside a null window.
    expected = tuple((read.sliding_window or 0) if kind == SLIDING else 0 for kind in read.layer_types)
    assert found(family, config) == expected


@pytest.mark.parametrize("words", [{}, {"sliding_window": 8}, {"sliding_window": 8, "layer_types": [SLIDING] * LAYERS}])
def test_llama_has_none(words: dict[str, Any]) -> None:
    assert layer_windows({"architectures": ["LlamaForCausalLM"], **words}) == ()


def test_mistral_looks_at_its_one_word_alone() -> None:
    for more in ({"layer_types": [FULL] * LAYERS}, {"use_sliding_window": False}, {"sliding_window_pattern": 2}):
        assert layer_windows({"model_type": "mistral", "sliding_window": 8, **more}) == (8,) * LAYERS


def test_the_architecture_says_the_family_before_the_model_type() -> None:
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "mistral", "sliding_window": 8}
    assert layer_windows(config) == ()


def test_a_qwen_of_the_hub_has_full_attention() -> None:
    """Qwen2.5-7B-Instruct's config.json names a window of 131072 and switches it off; older copies leave the switch out."""
    qwen: dict[str, Any] = {
        "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768, "max_window_layers": 28,
        "sliding_window": 131072, "use_sliding_window": False,
    }  # fmt: skip
    assert ModelShape.from_config(qwen).windows == ()
    del qwen["use_sliding_window"], qwen["max_window_layers"]
    assert ModelShape.from_config(qwen).windows == ()
