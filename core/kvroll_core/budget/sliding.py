"""How far each layer looks back: the one reader of windows, for the arithmetic of memory and for the engine.

The words of a config.json mean what the configuration class of its family in `transformers` makes of them, also where
the file is silent; other families by the words that most of them share.
"""

from collections.abc import Mapping
from typing import Any

FULL, SLIDING = "full_attention", "sliding_attention"
_WINDOW_KINDS = (SLIDING, "chunked_attention")
_FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_DEFAULT_WINDOWS = {
    "mistral": 4096,
    "ministral": 4096,
    "gemma2": 4096,
    "gemma3_text": 4096,
    "cohere2": 4096,
    "gpt_oss": 128,
}
_QWEN_WINDOW, _QWEN_FULL_LAYERS = 4096, 28
"""`sliding_window` and `max_window_layers` of Qwen's classes; they apply only with `use_sliding_window`, which is off."""
_PATTERNS = {"gemma2": 2, "gemma3_text": 6, "gpt_oss": 2, "cohere2": 4}
"""The last of so many layers looks back on everything, where the config leaves it out."""


def family_of(config: Mapping[str, Any]) -> str:
    """The word by which transformers finds the configuration class: of the architecture where we know it, else `model_type`."""
    architecture = (config.get("architectures") or [""])[0]
    return _FAMILIES.get(architecture) or config.get("model_type") or ""


def window_tokens(config: Mapping[str, Any]) -> int | None:
    """The length of the model's window, the token itself included; None where it has none or switches it off."""
    family = family_of(config)
    if family == "llama":
        return None
    if family.startswith("qwen"):
        return config.get("sliding_window", _QWEN_WINDOW) if config.get("use_sliding_window") else None
    window: int | None = config.get("sliding_window", _DEFAULT_WINDOWS.get(family))
    if family == "mistral":
        return window
    return (window or config.get("attention_chunk_size")) if config.get("use_sliding_window", True) else None
