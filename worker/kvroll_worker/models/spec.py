"""A model's config.json as the numbers that the engine needs; what it cannot run is refused by name."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroll_core.budget import ModelShape

_ARCHITECTURES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"}
_ROPE_TYPES = {"default", "linear", "llama3"}


class UnsupportedModelError(ValueError):
    """The model has a feature that this engine does not run; the message names it and what is supported."""


@dataclass(frozen=True)
class RopeSpec:
    """Rotary embedding: base, kind and the kind's own factors."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 0


@dataclass(frozen=True)
class ModelSpec:
    """What the forward pass is made of; equal specs and weights mean equal KV."""

    architecture: str
    shape: ModelShape
    rms_norm_eps: float
    qkv_bias: bool
    rope: RopeSpec
    eos_token_ids: tuple[int, ...]


def load_spec(folder: Path) -> ModelSpec:
    """Reads config.json and generation_config.json.

    Raises:
        UnsupportedModelError: another architecture, activation, rope type, bias or a sliding window.
    """
    config = read_json(folder / "config.json")
    if config is None:
        raise UnsupportedModelError(f"expected {folder}/config.json of an HF-style model folder, found none")
    architecture = (config.get("architectures") or ["?"])[0]
    _check_supported(config, architecture)
    shape = ModelShape.from_config(config)
    bias = architecture == "Qwen2ForCausalLM"
    return ModelSpec(architecture, shape, config["rms_norm_eps"], bias, _rope(config), _eos(folder, config))


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file, or None where there is no file."""
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> list[float]:
    """The head_dim/2 rotation frequencies, radians a position (transformers' `modeling_rope_utils` defines the kinds)."""
    plain = [rope.theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    scale: dict[str, Callable[[float], float]] = {
        "default": lambda f: f,
        "linear": lambda f: f / rope.factor,
        "llama3": lambda f: _llama3(f, rope),
    }
    return [scale[rope.kind](f) for f in plain]


def _llama3(frequency: float, rope: RopeSpec) -> float:
    wavelength = 2 * math.pi / frequency
    if wavelength < rope.original_max_positions / rope.high_freq_factor:
        return frequency
    if wavelength > rope.original_max_positions / rope.low_freq_factor:
        return frequency / rope.factor
    span = rope.high_freq_factor - rope.low_freq_factor
    smooth = (rope.original_max_positions / wavelength - rope.low_freq_factor) / span
    return (1 - smooth) * frequency / rope.factor + smooth * frequency


def _check_supported(config: dict[str, Any], architecture: str) -> None:
    if architecture not in _ARCHITECTURES:
        raise UnsupportedModelError(
            f"architecture {architecture} is not supported; supported: {', '.join(sorted(_ARCHITECTURES))}"
        )
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModelError(f"hidden_act {config['hidden_act']} is not supported; supported: silu")
    # Qwen2 names a window and switches it off by `use_sliding_window`.
    if config.get("sliding_window") and config.get("use_sliding_window", architecture != "Qwen2ForCausalLM"):
        raise UnsupportedModelError(
            f"sliding_window {config['sliding_window']} is not supported; supported: full attention"
        )
    if config.get("attention_bias") or config.get("mlp_bias"):
        raise UnsupportedModelError(
            "attention_bias and mlp_bias are not supported; supported: no bias, or Qwen2's q, k, v bias"
        )


def _rope(config: dict[str, Any]) -> RopeSpec:
    # transformers 5 writes one `rope_parameters`, 4 wrote `rope_theta` and `rope_scaling`.
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in _ROPE_TYPES:
        raise UnsupportedModelError(f"rope type {kind} is not supported; supported: {', '.join(sorted(_ROPE_TYPES))}")
    return RopeSpec(
        theta=float(scaling.get("rope_theta", config.get("rope_theta", 10000.0))),
        kind=kind,
        factor=float(scaling.get("factor", 1.0)),
        low_freq_factor=float(scaling.get("low_freq_factor", 1.0)),
        high_freq_factor=float(scaling.get("high_freq_factor", 4.0)),
        original_max_positions=int(scaling.get("original_max_position_embeddings", config["max_position_embeddings"])),
    )


def _eos(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    generation = read_json(folder / "generation_config.json") or {}
    eos = generation.get("eos_token_id", config.get("eos_token_id"))
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list) else (eos,)
