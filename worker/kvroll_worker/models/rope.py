"""Rotary embeddings: what config.json says about them, and the frequencies that follow.

The kinds and their arithmetic are transformers' (`modeling_rope_utils`); YaRN is arXiv:2309.00071.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvroll_worker.models.errors import UnsupportedModelError

_LLAMA3 = {"low_freq_factor", "high_freq_factor"}
_YARN = {"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"}
_WORDS = {
    "default": set[str](),
    "linear": {"factor"},
    "llama3": {"factor", "original_max_position_embeddings", *_LLAMA3},
    "yarn": {"factor", "original_max_position_embeddings", *_YARN},
}
_NEEDED = {"default": set[str](), "linear": {"factor"}, "llama3": {"factor", *_LLAMA3}, "yarn": {"factor"}}


@dataclass(frozen=True)
class RopeSpec:
    """Rotary embedding: base, kind and the kind's own factors; `attention_factor` multiplies cos and sin."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0


def read_rope(config: dict[str, Any]) -> RopeSpec:
    """The rotary embedding of a config.json; transformers 5 writes one `rope_parameters`, 4 wrote `rope_theta` and `rope_scaling`.

    Raises:
        UnsupportedModelError: another kind, a word that the kind does not have, one base a layer type, or a part of the head.
    """
    scaling: dict[str, Any] = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = scaling.pop("rope_type", None) or scaling.get("type") or "default"
    scaling.pop("type", None)
    theta = scaling.pop("rope_theta", None) or config.get("rope_theta") or 10000.0
    part = scaling.pop("partial_rotary_factor", None) or config.get("partial_rotary_factor") or 1.0
    if part != 1.0:
        raise UnsupportedModelError(f"partial_rotary_factor {part} is not supported; supported: 1.0, the whole head")
    _check_words(kind, scaling)
    # transformers lets the config's own word go first, then the kind's, then the model's length.
    first = config.get("original_max_position_embeddings") or scaling.get("original_max_position_embeddings")
    given = {
        name: float(scaling[name])
        for name in ("factor", "beta_fast", "beta_slow", *_LLAMA3)
        if scaling.get(name) is not None
    }
    return RopeSpec(
        theta=float(theta),
        kind=kind,
        original_max_positions=int(first or config["max_position_embeddings"]),
        truncate=bool(scaling.get("truncate", True)),
        attention_factor=_attention_factor(scaling) if kind == "yarn" else 1.0,
        **given,
    )


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> list[float]:
    """The head_dim/2 rotation frequencies, radians a position."""
    plain = [rope.theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    if rope.kind == "yarn":
        return _yarn(plain, rope, head_dim)
    scale: dict[str, Callable[[float], float]] = {
        "default": lambda f: f,
        "linear": lambda f: f / rope.factor,
        "llama3": lambda f: _llama3(f, rope),
    }
    return [scale[rope.kind](f) for f in plain]


def _check_words(kind: str, scaling: dict[str, Any]) -> None:
    if kind not in _WORDS:
        raise UnsupportedModelError(f"rope type {kind} is not supported; supported: {', '.join(sorted(_WORDS))}")
    if unknown := sorted(set(scaling) - _WORDS[kind]):
        raise UnsupportedModelError(
            f"rope_parameters.{unknown[0]} is not supported for rope type {kind};"
            f" supported: {', '.join(sorted(_WORDS[kind])) or 'rope_theta alone'}"
        )
    if absent := sorted(name for name in _NEEDED[kind] if scaling.get(name) is None):
        raise UnsupportedModelError(f"expected rope_parameters.{absent[0]} of rope type {kind}, found none")


def _llama3(frequency: float, rope: RopeSpec) -> float:
    wavelength = 2 * math.pi / frequency
    if wavelength < rope.original_max_positions / rope.high_freq_factor:
        return frequency
    if wavelength > rope.original_max_positions / rope.low_freq_factor:
        return frequency / rope.factor
    span = rope.high_freq_factor - rope.low_freq_factor
    smooth = (rope.original_max_positions / wavelength - rope.low_freq_factor) / span
    return (1 - smooth) * frequency / rope.factor + smooth * frequency


def _yarn(plain: list[float], rope: RopeSpec, head_dim: int) -> list[float]:
    """Dims that turn more than beta_fast times within the original length stay, fewer than beta_slow: / factor, a ramp between."""

    def dim_that_turns(times: float) -> float:
        return head_dim * math.log(rope.original_max_positions / (times * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dim_that_turns(rope.beta_fast), dim_that_turns(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    span = high - low if high != low else 0.001
    ramp = [min(max((i - low) / span, 0.0), 1.0) for i in range(head_dim // 2)]
    return [f / rope.factor * part + f * (1 - part) for f, part in zip(plain, ramp, strict=True)]


def _attention_factor(scaling: dict[str, Any]) -> float:
    if (given := scaling.get("attention_factor")) is not None:
        return float(given)
    factor, mscale, all_dims = float(scaling["factor"]), scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and all_dims:
        return _mscale(factor, mscale) / _mscale(factor, all_dims)
    return _mscale(factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
