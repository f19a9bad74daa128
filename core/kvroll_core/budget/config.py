"""Reads the parts of a config.json that memory depends on, in the keys of the model families that have them."""

from dataclasses import dataclass
from typing import Any

from kvroll_core.budget.families import Settings, ShapeError

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


def sizes(config: Settings) -> dict[str, Any]:
    """The plain sizes, by the names of `ModelShape`.

    Raises:
        ShapeError: a key is missing, or its value cannot be.
    """
    inner = config.raw("intermediate_size")
    if isinstance(inner, list):  # Gemma 3n says it by layer
        inner = max((config.checked("intermediate_size", size) for size in inner), default=None)
    elif inner is not None:
        inner = config.checked("intermediate_size", inner)
    return {
        "hidden": config.count("hidden_size"),
        "intermediate": inner or config.optional("moe_intermediate_size") or 0,
        "vocab": config.count("vocab_size"),
        "tied_head": config.flag("tie_word_embeddings"),
        "max_positions": config.optional("max_position_embeddings") or 0,
    }


def experts(config: Settings) -> Experts | None:
    """The mixture of experts, where there is one: Mixtral's, gpt-oss's, Qwen's and DeepSeek's keys.

    Raises:
        ShapeError: a value that cannot be.
    """
    count = _first(config, ("n_routed_experts", "num_experts", "num_local_experts"))
    if not count:
        return None
    inter = config.optional("moe_intermediate_size") or config.count("intermediate_size")
    per_token = _first(config, ("num_experts_per_tok", "experts_per_token"))
    if per_token is None:
        return None
    if per_token > count:
        raise ShapeError(f"num_experts_per_tok: expected 1 to the {count} experts, found {per_token}")
    shared = config.optional("shared_expert_intermediate_size", least=0)
    if shared is None:
        shared = (config.optional("n_shared_experts", least=0) or 0) * inter
    dense = config.optional("first_k_dense_replace", least=0) or len(config.listed("mlp_only_layers", int) or [])
    return Experts(count, per_token, inter, shared, dense)


def has_even_experts(config: Settings) -> bool:
    """Whether every layer after the first dense ones has experts, or none has."""
    return all(config.raw(key) in (None, 1) for key in ("decoder_sparse_step", "moe_layer_freq"))


def _first(config: Settings, keys: tuple[str, ...]) -> int | None:
    found = (config.optional(key, least=0) for key in keys)
    return next((count for count in found if count), None)


def latent(config: Settings) -> Latent:
    """Multi-head latent attention."""
    nope = config.count("qk_nope_head_dim")
    return Latent(
        kv_rank=config.count("kv_lora_rank"),
        rope_dim=config.count("qk_rope_head_dim"),
        nope_dim=nope,
        value_dim=config.optional("v_head_dim") or nope,
        query_rank=config.optional("q_lora_rank") or 0,
        index_dim=config.optional("index_head_dim") or 0,
        index_heads=config.optional("index_n_heads") or 0,
    )


def compressed(config: Settings, layers: int) -> Compressed:
    """DeepSeek-V4's attention: `compress_ratios` has a number a layer, then those of the prediction layers.

    Raises:
        ShapeError: another layout than V4's ratios 0 or 1 (a window alone), 4 (with an indexer) and 128.
    """
    ratios = config.listed("compress_ratios", int) or _ratios_by_kind(config, layers)
    ratios = ratios[:layers]
    if len(ratios) != layers or not set(ratios) <= _V4_RATIOS:
        raise ShapeError(
            f"compress_ratios: expected 0, 1, 4 or 128 for each of {layers} layers (DeepSeek-V4), found {sorted(set(ratios))}"
            f" for {len(ratios)}; other compressed layouts are not counted"
        )
    return Compressed(
        ratios=tuple(0 if ratio == 1 else ratio for ratio in ratios),
        state_dim=config.count("head_dim"),
        rope_dim=config.count("qk_rope_head_dim"),
        window=config.count("sliding_window"),
        index_dim=config.count("index_head_dim"),
    )


def _ratios_by_kind(config: Settings, layers: int) -> list[int]:
    ratio = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    words = config.listed("layer_types", str)
    if words is None or set(words) - set(ratio):
        raise ShapeError("expected compress_ratios or layer_types of a deepseek_v4 model, found neither that we know")
    return [ratio[word] for word in words]
