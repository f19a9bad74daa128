"""A model's config.json as the numbers that the engine needs; what it cannot run is refused by name."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroll_core.budget import ModelShape, ShapeError
from kvroll_kernels.ops import HEAD_DIM_MULTIPLE, MAX_HEAD_DIM
from kvroll_worker.models.attention import (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    check_windows,
    read_biases,
    read_sinks,
)
from kvroll_worker.models.errors import UnsupportedModelError as UnsupportedModelError
from kvroll_worker.models.prequantised import refuse_prequantised
from kvroll_worker.models.rope import RopeSpec, read_rope

# What transformers' config classes fill in where the file is silent, and the file's reader would otherwise guess.
_DEFAULTS: dict[str, dict[str, Any]] = {
    LLAMA: {},
    MISTRAL: {"num_key_value_heads": 8},
    QWEN2: {"num_key_value_heads": 32},
    QWEN3: {"num_key_value_heads": 32, "head_dim": 128},
}
_NEEDED = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
)
# Words of other architectures that change every logit; a folder that claims one of ours and sets them is no ordinary one.
_UNREAD = (
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention_multiplier",
    "embedding_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "query_pre_attn_scalar",
    "clip_qkv",
    "num_experts",
    "num_local_experts",
    "kv_lora_rank",
)


@dataclass(frozen=True)
class ModelSpec:
    """What the forward pass is made of; equal specs and weights mean equal KV."""

    architecture: str
    shape: ModelShape
    rms_norm_eps: float
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool  # RMS norm of each q and k head before the rotation
    sinks: bool
    windows: tuple[int, ...]  # tokens that each layer attends to, 0 = all
    rope: RopeSpec
    eos_token_ids: tuple[int, ...]


def load_spec(folder: Path) -> ModelSpec:
    """Reads config.json and generation_config.json.

    Raises:
        UnsupportedModelError: a word that this engine does not run, or runs otherwise than its writer meant; it is named.
    """
    config = read_json(folder / "config.json")
    if config is None:
        raise UnsupportedModelError(f"expected {folder}/config.json of an HF-style model folder, found none")
    refuse_prequantised(folder, config)
    architecture = (config.get("architectures") or ["?"])[0]
    _check_supported(config, architecture)
    config = {**_DEFAULTS[architecture], **config}
    check_windows(config, architecture)
    try:
        shape = ModelShape.from_config(config)
    except ShapeError as error:
        raise UnsupportedModelError(str(error)) from error
    _check_heads(shape)
    return ModelSpec(
        architecture,
        shape,
        config["rms_norm_eps"],
        *read_biases(config, architecture),
        qk_norm=architecture == QWEN3,
        sinks=read_sinks(config),
        windows=shape.windows or (0,) * shape.layers,
        rope=read_rope(config),
        eos_token_ids=_eos(folder, config),
    )


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file, or None where there is no file."""
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _check_supported(config: dict[str, Any], architecture: str) -> None:
    if architecture not in _DEFAULTS:
        raise UnsupportedModelError(
            f"architecture {architecture} is not supported; supported: {', '.join(sorted(_DEFAULTS))}"
        )
    if "AutoModelForCausalLM" in (config.get("auto_map") or {}):
        raise UnsupportedModelError(
            f"auto_map names code of the model's own; supported: {architecture} as transformers runs it"
        )
    if absent := [name for name in _NEEDED if config.get(name) is None]:
        raise UnsupportedModelError(f"expected {absent[0]} in config.json, found none")
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModelError(f"hidden_act {config['hidden_act']} is not supported; supported: silu")
    if other := [name for name in _UNREAD if config.get(name) is not None]:
        raise UnsupportedModelError(
            f"{other[0]} {config[other[0]]} is not supported; supported: {architecture} without it"
        )


def _check_heads(shape: ModelShape) -> None:
    if shape.heads % shape.kv_heads:
        raise UnsupportedModelError(
            f"num_attention_heads {shape.heads} is not a multiple of num_key_value_heads {shape.kv_heads}"
        )
    if shape.head_dim % HEAD_DIM_MULTIPLE or not 0 < shape.head_dim <= MAX_HEAD_DIM:
        raise UnsupportedModelError(
            f"head_dim {shape.head_dim} is not supported; supported: multiples of {HEAD_DIM_MULTIPLE} up to {MAX_HEAD_DIM}"
        )


def _eos(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    generation = read_json(folder / "generation_config.json") or {}
    eos = generation.get("eos_token_id", config.get("eos_token_id"))
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list) else (eos,)
