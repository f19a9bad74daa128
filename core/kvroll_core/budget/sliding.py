"""How far each layer looks back: the one reader of windows, for the arithmetic of memory and for the engine.

The words of a config.json mean what the configuration class of its family in `transformers` makes of them, also where
the file is silent; other families by the words that most of them share.
"""

from collections.abc import Mapping, Sequence
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


class ShapeError(ValueError):
    """A config.json that we cannot count; the message names the key, what was expected and what to do."""


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


def layer_windows(config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Tokens that each layer looks back, its own included, 0 for all; empty where every layer looks back on everything.

    Raises:
        ShapeError: a kind of layer that is neither full nor sliding attention, too few of them, or a window without a length.
    """
    window, kinds = window_tokens(config), config.get("layer_types")
    if family_of(config) in ("llama", "mistral"):  # their attention does not look at layer_types
        kinds = None
    sliding = _named(kinds, layers) if kinds else [bool(window) and _slides(config, index) for index in range(layers)]
    if not any(sliding):
        return ()
    if not window:
        raise ShapeError("layer_types names sliding layers: expected sliding_window beside it, found none")
    return tuple(window if slides else 0 for slides in sliding)


def _named(kinds: Sequence[str], layers: int) -> list[bool]:
    if unknown := sorted(set(kinds) - {FULL, *_WINDOW_KINDS}):
        raise ShapeError(f"layer_types: expected {FULL} or {' or '.join(_WINDOW_KINDS)}, found {', '.join(unknown)}")
    if len(kinds) != layers:
        raise ShapeError(f"layer_types: expected one for each of {layers} layers, found {len(kinds)}")
    return [kind in _WINDOW_KINDS for kind in kinds]


def _slides(config: Mapping[str, Any], index: int) -> bool:
    """Whether a layer of a model with a window has it, where no list says so."""
    family = family_of(config)
    if family == "qwen2_moe":  # every other one of the first max_window_layers
        return index % 2 == 0 and index < config.get("max_window_layers", _QWEN_FULL_LAYERS)
    if family.startswith("qwen") and family != "qwen3_moe":
        return bool(index >= config.get("max_window_layers", _QWEN_FULL_LAYERS))
    if family in ("mistral", "qwen3_moe"):
        return True
    if pattern := config.get("sliding_window_pattern", _PATTERNS.get(family)):
        return bool((index + 1) % pattern)
    return bool(index >= config.get("max_window_layers", 0)) if "use_sliding_window" in config else True
