"""What config.json says about attention beyond its sizes: windows, sinks and biases, by architecture.

Where a config class of transformers gives a word a value that the file leaves out, so do we; where transformers would
ignore a word that other engines read (or the other way round), the folder is refused instead of read one way or the other.
"""

from typing import Any

from kvroll_core.budget import FULL, SLIDING, window_tokens
from kvroll_worker.models.errors import UnsupportedModelError

LLAMA, MISTRAL, QWEN2, QWEN3 = "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
_BIAS_WORDS = {LLAMA: ("attention_bias", "mlp_bias"), MISTRAL: (), QWEN2: (), QWEN3: ("attention_bias",)}


def check_windows(config: dict[str, Any], architecture: str) -> None:
    """Refuses windows that other engines read otherwise than `kvroll_core.budget`, which reads them as transformers does.

    Raises:
        UnsupportedModelError: a layer type that is neither full nor sliding, a window without a length, or words that contradict.
    """
    _check_length(config, architecture)
    layers, window, types = config["num_hidden_layers"], window_tokens(config), config.get("layer_types")
    if not types:
        return
    if unknown := sorted(set(types) - {FULL, SLIDING}):
        raise UnsupportedModelError(f"layer_types {unknown[0]} is not supported; supported: {FULL}, {SLIDING}")
    if len(types) != layers:
        raise UnsupportedModelError(f"expected layer_types of {layers} layers, found {len(types)}")
    if SLIDING in types and window is None:
        raise UnsupportedModelError(
            f"layer_types names {SLIDING}, but sliding_window is {config.get('sliding_window')} and"
            f" use_sliding_window {config.get('use_sliding_window')}; set both, or remove the layer type"
        )
    if architecture == MISTRAL and window is not None and FULL in types:
        raise UnsupportedModelError(
            f"layer_types with {FULL} is not supported for {architecture} with a sliding_window, which transformers"
            " gives to every layer; supported: sliding_window alone, or null"
        )


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


def _check_length(config: dict[str, Any], architecture: str) -> None:
    window = config.get("sliding_window") if architecture == LLAMA else window_tokens(config)
    if window is None:
        return
    if type(window) is not int or window < 1:
        raise UnsupportedModelError(f"sliding_window {window!r} is not supported; supported: null, or at least 1 token")
    if architecture == LLAMA:
        raise UnsupportedModelError(
            f"sliding_window {window} is not supported for {architecture}, which has none in transformers;"
            f" supported: {MISTRAL} (every layer), {QWEN2} and {QWEN3} (layer_types, max_window_layers)"
        )
