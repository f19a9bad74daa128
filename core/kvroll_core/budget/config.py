"""Reads the parts of a config.json that memory depends on, in the keys of the model families that have them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroll_core.budget.sliding import ShapeError, layer_windows

Config = Mapping[str, Any]

_V4_RATIOS = {0, 1, 4, 128}


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in all but the first `dense_layers` layers: `per_token` of `count` are used by a token,
    and the shared one.
    """

    count: int
    per_token: int
    intermediate: int
    shared_intermediate: int = 0
    dense_layers: int = 0


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, V3): the cache holds `kv_rank` + `rope_dim` dimensions, with V3.2's
    indexer `index_dim` more.
    """

    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_rank: int = 0
    index_dim: int = 0
    index_heads: int = 0

    def elements(self, hidden: int, heads: int) -> int:
        """Elements of one layer's projections: q (through its rank), kv down and up, o, and the indexer's."""
        query = heads * (self.nope_dim + self.rope_dim)
        down = hidden * self.query_rank + self.query_rank * query if self.query_rank else hidden * query
        keys = hidden * (self.kv_rank + self.rope_dim) + self.kv_rank * heads * (self.nope_dim + self.value_dim)
        indexer = self.index_heads * (self.query_rank * self.index_dim + hidden) + hidden * self.index_dim
        return down + keys + heads * self.value_dim * hidden + indexer


@dataclass(frozen=True)
class Compressed:
    """DeepSeek-V4's attention: layer i keeps a state per `ratios[i]` tokens (0: none) and one for each of the newest
    `window`.
    """

    ratios: tuple[int, ...]
    state_dim: int
    rope_dim: int
    window: int
    index_dim: int


def sizes(config: Config) -> dict[str, Any]:
    """The plain sizes, by the names of `ModelShape`.

    Raises:
        ShapeError: a key is missing.
    """
    heads = _need(config, "num_attention_heads")
    hidden = _need(config, "hidden_size")
    return {
        "layers": _need(config, "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or hidden // heads,
        "intermediate": config.get("intermediate_size") or _need(config, "moe_intermediate_size"),
        "vocab": _need(config, "vocab_size"),
        "tied_head": bool(config.get("tie_word_embeddings", False)),
        "max_positions": _need(config, "max_position_embeddings"),
    }


def windows(config: Config, layers: int) -> tuple[int, ...]:
    """Tokens that each layer looks back, 0 for all; empty where every layer looks back on everything.

    Raises:
        ShapeError: what `layer_windows` refuses, or KV shared between layers.
    """
    if config.get("num_kv_shared_layers"):
        raise ShapeError("num_kv_shared_layers: KV caches shared between layers are not counted; expected none")
    return layer_windows(config, layers)


def experts(config: Config) -> Experts | None:
    """The mixture of experts, where there is one: Mixtral's, gpt-oss's, Qwen's and DeepSeek's keys.

    Raises:
        ShapeError: only every so many layers have one.
    """
    count = next((config[k] for k in ("n_routed_experts", "num_experts", "num_local_experts") if config.get(k)), 0)
    if not count:
        return None
    if config.get("decoder_sparse_step", 1) != 1 or config.get("moe_layer_freq", 1) != 1:
        raise ShapeError("decoder_sparse_step, moe_layer_freq: expected experts in every layer after the dense ones")
    inter = config.get("moe_intermediate_size") or _need(config, "intermediate_size")
    per_token = config.get("num_experts_per_tok") or _need(config, "experts_per_token")
    shared = config.get("shared_expert_intermediate_size") or (config.get("n_shared_experts") or 0) * inter
    dense = config.get("first_k_dense_replace") or len(config.get("mlp_only_layers") or [])
    return Experts(count, per_token, inter, shared, dense)


def latent(config: Config) -> Latent | None:
    """Multi-head latent attention, where there is one."""
    if not config.get("kv_lora_rank"):
        return None
    nope = _need(config, "qk_nope_head_dim")
    return Latent(
        kv_rank=config["kv_lora_rank"],
        rope_dim=_need(config, "qk_rope_head_dim"),
        nope_dim=nope,
        value_dim=config.get("v_head_dim") or nope,
        query_rank=config.get("q_lora_rank") or 0,
        index_dim=config.get("index_head_dim") or 0,
        index_heads=config.get("index_n_heads") or 0,
    )


def compressed(config: Config) -> Compressed | None:
    """DeepSeek-V4's attention, where it is that: `compress_ratios` has a number a layer, then those of the prediction
    layers.

    Raises:
        ShapeError: another layout than V4's ratios 0 or 1 (a window alone), 4 (with an indexer) and 128.
    """
    ratios = config.get("compress_ratios")
    if not ratios:
        return None
    layers = _need(config, "num_hidden_layers")
    ratios = ratios[:layers]
    if len(ratios) != layers or not set(ratios) <= _V4_RATIOS:
        raise ShapeError(
            f"compress_ratios: expected 0, 1, 4 or 128 for each of {layers} layers (DeepSeek-V4), found {sorted(set(ratios))}"
            f" for {len(ratios)}; other compressed layouts are not counted"
        )
    return Compressed(
        ratios=tuple(0 if ratio == 1 else ratio for ratio in ratios),
        state_dim=_need(config, "head_dim"),
        rope_dim=_need(config, "qk_rope_head_dim"),
        window=_need(config, "sliding_window"),
        index_dim=_need(config, "index_head_dim"),
    )


def _need(config: Config, key: str) -> Any:
    if config.get(key) is None:
        raise ShapeError(f"expected {key}, as in the config.json of a decoder-only transformer, found none")
    return config[key]
