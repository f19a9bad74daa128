"""What config.json says about attention beyond its sizes: windows, sinks and biases, by architecture.

Where a config class of transformers gives a word a value that the file leaves out, so do we; where transformers would
ignore a word that other engines read (or the other way round), the folder is refused instead of read one way or the other.
"""

from typing import Any

from kvroll_worker.models.errors import UnsupportedModelError

LLAMA, MISTRAL, QWEN2, QWEN3 = "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
WINDOW_WORDS = ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types")
"""The words of a config.json that `read_windows` reads."""
_MAX_WINDOW_LAYERS = 28  # of Qwen2Config and Qwen3Config
_FULL, _SLIDING = "full_attention", "sliding_attention"
_BIAS_WORDS = {LLAMA: ("attention_bias", "mlp_bias"), MISTRAL: (), QWEN2: (), QWEN3: ("attention_bias",)}


def read_windows(config: dict[str, Any], architecture: str) -> tuple[int, ...]:
    """Tokens that each layer attends to, its own included; 0 is all.

    Raises:
        UnsupportedModelError: a layer type that is neither full nor sliding, a window without a length, or words that contradict.
    """
    layers = config["num_hidden_layers"]
    window = _window(config, architecture)
    types = config.get("layer_types") or _default_types(config, architecture, window, layers)
    if unknown := sorted(set(types) - {_FULL, _SLIDING}):
        raise UnsupportedModelError(f"layer_types {unknown[0]} is not supported; supported: {_FULL}, {_SLIDING}")
    if len(types) != layers:
        raise UnsupportedModelError(f"expected layer_types of {layers} layers, found {len(types)}")
    if _SLIDING in types and window is None:
        raise UnsupportedModelError(
            f"layer_types names {_SLIDING}, but sliding_window is {config.get('sliding_window')} and"
            f" use_sliding_window {config.get('use_sliding_window')}; set both, or remove the layer type"
        )
    if architecture == MISTRAL and window is not None and _FULL in types:
        raise UnsupportedModelError(
            f"layer_types with {_FULL} is not supported for {architecture} with a sliding_window, which transformers"
            " gives to every layer; supported: sliding_window alone, or null"
        )
    return tuple(window or 0 if kind == _SLIDING else 0 for kind in types)


def read_sinks(config: dict[str, Any]) -> bool:
    """Whether each query head has a learned sink: `attention_sinks`, a word of kvroll's own (tensors as in GPT-OSS).

    Raises:
        UnsupportedModelError: the word is neither true nor false.
    """
    sinks = config.get("attention_sinks", False)
    if not isinstance(sinks, bool):
        raise UnsupportedModelError(f"attention_sinks {sinks!r} is not supported; supported: true, false")
    return sinks


def read_biases(config: dict[str, Any], architecture: str) -> tuple[bool, bool, bool]:
    """Whether q, k, v; the attention's output; and the MLP have biases.

    Raises:
        UnsupportedModelError: a bias that this architecture does not have.
    """
    for word in ("attention_bias", "mlp_bias"):
        if config.get(word) and word not in _BIAS_WORDS[architecture]:
            raise UnsupportedModelError(
                f"{word} is not supported for {architecture}; supported: attention_bias for Llama and Qwen3,"
                " mlp_bias for Llama (Qwen2 has its q, k, v biases without a word)"
            )
    attention = bool(config.get("attention_bias"))
    return attention or architecture == QWEN2, attention, bool(config.get("mlp_bias"))


def _window(config: dict[str, Any], architecture: str) -> int | None:
    window = config.get("sliding_window")
    if architecture in (QWEN2, QWEN3) and not config.get("use_sliding_window", False):
        return None  # Qwen names a window and switches it off
    if window is None:
        return None
    if type(window) is not int or window < 1:
        raise UnsupportedModelError(f"sliding_window {window!r} is not supported; supported: null, or at least 1 token")
    if architecture == LLAMA:
        raise UnsupportedModelError(
            f"sliding_window {window} is not supported for {architecture}, which has none in transformers;"
            f" supported: {MISTRAL} (every layer), {QWEN2} and {QWEN3} (layer_types, max_window_layers)"
        )
    return window


def _default_types(config: dict[str, Any], architecture: str, window: int | None, layers: int) -> list[str]:
    if window is None:
        return [_FULL] * layers
    # The first max_window_layers layers of a Qwen attend to everything.
    full = 0 if architecture == MISTRAL else config.get("max_window_layers", _MAX_WINDOW_LAYERS)
    return [_FULL if index < full else _SLIDING for index in range(layers)]
