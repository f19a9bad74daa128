"""What a layer of a kind keeps for one session: K and V of heads, a latent, a state, or several of them.

A part is one layer's; it holds counts of elements and no bytes, those depend on the KV dtype.
"""

from collections.abc import Callable

from kvroll_core.budget.cache import HeadKv, KvGroup, LatentKv, StateKv
from kvroll_core.budget.families.layers import CHUNKED, CONV, FULL, HYBRID, HYBRID_SLIDING, INDEXED, LINEAR, SLIDING
from kvroll_core.budget.families.settings import Settings, ShapeError

Parts = Callable[[Settings, str, int], tuple[KvGroup, ...]]
_WINDOWED = (SLIDING, HYBRID_SLIDING)
_SCALE_GROUP = 128  # MLA in 8 bits: one fp32 scale per 128 dimensions (vLLM `fp8_ds_mla`)


def window_of(s: Settings, kind: str) -> int | None:
    """Tokens that a layer of the kind looks back, its own included; None: all.

    Raises:
        ShapeError: the kind has a window, and the file says no length.
    """
    if kind in _WINDOWED:
        found = s.optional("sliding_window")
        if found is None:
            raise ShapeError("layer_types names sliding layers: expected sliding_window beside it, found none")
        return found
    if kind == CHUNKED:
        return s.count("attention_chunk_size")
    return None


def kv_heads(s: Settings) -> int:
    """Heads of K and V; the query heads' number where the file says null.

    Raises:
        ShapeError: they do not divide the query heads.
    """
    heads = s.count("num_attention_heads")
    found = s.optional("num_key_value_heads") or heads
    if heads % found:
        raise ShapeError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {found}")
    return found


def head_dim(s: Settings) -> int:
    """Of the file, else the hidden size over the heads.

    Raises:
        ShapeError: neither is possible.
    """
    found = s.optional("head_dim")
    if found is not None:
        return found
    derived = s.divided("hidden_size", "num_attention_heads")
    s.derived.append(f"head_dim {derived}: hidden_size / num_attention_heads")
    return derived


def heads(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """K and V of equal heads."""
    return (HeadKv(1, kv_heads(s), head_dim(s), window_of(s, kind)),)


def derived_heads(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Heads whose size is never read, always hidden_size / num_attention_heads."""
    return (HeadKv(1, kv_heads(s), s.divided("hidden_size", "num_attention_heads"), window_of(s, kind)),)


def modernbert(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """ModernBERT's decoder: `local_attention` counts both sides, of which it looks on one."""
    window = max(s.count("local_attention") // 2, 1) if kind == SLIDING else None
    return (HeadKv(1, s.count("num_attention_heads"), s.divided("hidden_size", "num_attention_heads"), window),)


def one_query_group(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """GPT-BigCode: one head with `multi_query`."""
    count = 1 if s.flag("multi_query") else s.count("num_attention_heads")
    return (HeadKv(1, count, s.divided("hidden_size", "num_attention_heads")),)


def falcon(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Falcon: `num_kv_heads` in the new architecture, else one head with `multi_query`, else all."""
    every = s.count("num_attention_heads")
    if s.flag("new_decoder_architecture"):
        count = s.optional("num_kv_heads") or every
        if every % count:
            raise ShapeError(f"num_kv_heads {count} does not divide num_attention_heads {every}")
    else:
        count = 1 if s.flag("multi_query") else every
    return (HeadKv(1, count, s.divided("hidden_size", "num_attention_heads")),)


def dbrx(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """DBRX: `attn_config.kv_n_heads`."""
    count = s.nested("attn_config").optional("kv_n_heads") or 1
    if s.count("num_attention_heads") % count:
        raise ShapeError(f"attn_config.kv_n_heads {count} does not divide n_heads {s.count('num_attention_heads')}")
    return (HeadKv(1, count, s.divided("hidden_size", "num_attention_heads")),)


def chatglm(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """ChatGLM: `multi_query_group_num` heads of `kv_channels` with `multi_query_attention`."""
    every = s.count("num_attention_heads")
    count = s.count("multi_query_group_num") if s.flag("multi_query_attention") else every
    return (HeadKv(1, count, s.optional("kv_channels") or s.divided("hidden_size", "num_attention_heads")),)


def gemma4(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Gemma 4: full layers have heads of `global_head_dim`, and with `attention_k_eq_v` `num_global_key_value_heads` of them."""
    if kind != FULL or s.has("per_layer_config"):
        return heads(s, kind, layer)
    count = (s.optional("num_global_key_value_heads") if s.flag("attention_k_eq_v") else None) or kv_heads(s)
    return (HeadKv(1, count, s.optional("global_head_dim") or 512),)


def mimo_v2(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """MiMo-V2: keys and values of two sizes, and other heads on the layers with a window."""
    count, keys, values = kv_heads(s), s.count("head_dim"), s.count("v_head_dim")
    if kind == SLIDING:
        count = s.optional("swa_num_key_value_heads") or 2 * count
        keys, values = s.optional("swa_head_dim") or keys, s.optional("swa_v_head_dim") or values
    return (HeadKv(1, count, keys, window_of(s, kind), value_dim=values),)


def inkling(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Inkling: other heads on the layers with a window, and four short convolutions on every layer, of K, V and two of the hidden size."""
    prefix = "swa_" if kind == HYBRID_SLIDING else ""
    count = s.optional(f"{prefix}num_key_value_heads") or kv_heads(s)
    dim = s.optional(f"{prefix}head_dim") or head_dim(s)
    rows = 2 * count * dim + 2 * s.count("hidden_size")
    return HeadKv(1, count, dim, window_of(s, kind)), StateKv(1, rows, s.count("conv_kernel_size") - 1, 0)


def latent(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Multi-head latent attention; an indexer's key beside it on the layers that compute one."""
    rank, rope = s.count("kv_lora_rank"), s.count("qk_rope_head_dim")
    index = 0
    if kind == INDEXED and _has_indexer(s, layer):
        index = s.count("index_head_dim")
    return (LatentKv(1, rank, rope, 4 * -(-rank // _SCALE_GROUP), index=index),)


def _has_indexer(s: Settings, layer: int) -> bool:
    kinds = s.listed("indexer_types", str)
    if kinds is None:
        every = s.raw("shared_indexer_period")
        return not every or layer == 0 or (layer - 1) % every == 0
    if layer >= len(kinds):
        raise ShapeError(f"indexer_types: expected one for each layer, found {len(kinds)}")
    return bool(kinds[layer] == "full")


def mamba1(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Mamba: a state of `state_size` and a convolution for each inner channel."""
    inner = s.count("mamba_expand") * s.count("hidden_size")
    return (StateKv(1, inner, s.count("mamba_d_conv") - 1, inner * s.count("mamba_d_state")),)


def mamba1_alone(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """The same where the file says the inner size itself (Mamba, FalconMamba)."""
    inner = s.optional("intermediate_size") or s.count("mamba_expand") * s.count("hidden_size")
    return (StateKv(1, inner, s.count("mamba_d_conv") - 1, inner * s.count("mamba_d_state")),)


def mamba2(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Mamba-2: heads x head size x state, and a convolution over the inner channels and both projections of every group."""
    count, dim = s.count("mamba_n_heads"), s.raw("mamba_d_head")
    inner = s.optional("mamba_d_ssm") or s.count("mamba_expand") * s.count("hidden_size")
    if dim == "auto" or dim is None:
        if inner % count:
            raise ShapeError(f"mamba_n_heads {count} does not divide the inner size {inner}: expected mamba_d_head")
        dim = inner // count
    inner, state = count * s.checked("mamba_d_head", dim), s.count("mamba_d_state")
    rows = inner + 2 * s.count("mamba_n_groups") * state
    wide = s.raw("mamba_ssm_cache_dtype") == "float32"
    return (StateKv(1, rows, s.count("mamba_d_conv") - 1, inner * state, wide_state=wide),)


def delta_net(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Gated DeltaNet: value heads x key size x value size, and a convolution over keys twice and values."""
    count = s.count("linear_num_value_heads")
    keys, values = s.count("linear_key_head_dim"), s.count("linear_value_head_dim")
    rows = 2 * s.count("linear_num_key_heads") * keys + count * values
    wide = s.raw("mamba_ssm_dtype") == "float32"
    return (StateKv(1, rows, s.count("linear_conv_kernel_dim") - 1, count * keys * values, wide_state=wide),)


def kimi_delta(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Kimi Delta Attention: heads x size x size, and a convolution over queries, keys and values."""
    inner = s.nested("linear_attn_config")
    count = inner.optional("num_heads") or s.optional("linear_num_heads") or s.count("num_attention_heads")
    dim = inner.optional("head_dim") or s.count("linear_head_dim")
    kernel = inner.optional("short_conv_kernel_size") or s.count("linear_conv_kernel_dim")
    return (StateKv(1, 3 * count * dim, kernel - 1, count * dim * dim),)


def bailing_delta(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """The same of Bailing (Ling) hybrids: as many heads as attention has."""
    count, dim = s.count("num_attention_heads"), s.optional("linear_head_dim") or s.count("head_dim")
    return (StateKv(1, 3 * count * dim, s.count("short_conv_kernel_size") - 1, count * dim * dim),)


def lightning(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Lightning attention (MiniMax): heads x size x size."""
    return (StateKv(1, 0, 0, s.count("num_attention_heads") * head_dim(s) ** 2),)


def short_conv(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """LFM2's gated convolution of `conv_L_cache` tokens over the hidden size."""
    return (StateKv(1, s.count("hidden_size"), s.count("conv_L_cache") - 1, 0),)


def griffin(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """RG-LRU of RecurrentGemma: a number for each channel in fp32, and a convolution."""
    width = s.optional("lru_width") or s.count("hidden_size")
    return (StateKv(1, width, s.count("conv1d_width") - 1, width, wide_state=True),)


def by_kind(attention: Parts, state: Parts | None = None) -> Parts:
    """The parts of a layer whose kind says which of both it has."""

    def parts(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
        found: tuple[KvGroup, ...] = ()
        if kind in (FULL, SLIDING, CHUNKED, INDEXED, HYBRID, HYBRID_SLIDING):
            found += attention(s, kind, layer)
        if kind in (LINEAR, CONV, HYBRID, HYBRID_SLIDING) and state is not None:
            found += state(s, kind, layer)
        return found

    return parts


def wide_heads(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Zamba: the shared attention sees two hidden sizes side by side, so its heads are twice as large."""
    count = s.count("num_attention_heads")
    dim = s.optional("attention_head_dim") or 2 * s.count("hidden_size") // count
    return (HeadKv(1, kv_heads(s), dim),)


def nas_block(s: Settings, kind: str, layer: int) -> tuple[KvGroup, ...]:
    """Nemotron-NAS (DeciLM): `block_configs[i].attention` says the query heads that share a KV head, or that there is none."""
    blocks = s.listed("block_configs", dict) or []
    if layer >= len(blocks):
        raise ShapeError(f"block_configs: expected one for each layer, found {len(blocks)}")
    attention = Settings(blocks[layer]).nested("attention")
    if attention.flag("no_op") or attention.flag("replace_with_linear"):
        return ()
    every, share = s.count("num_attention_heads"), attention.count("n_heads_in_group")
    if every % share:
        raise ShapeError(
            f"block_configs[{layer}]: n_heads_in_group {share} does not divide num_attention_heads {every}"
        )
    return (HeadKv(1, every // share, head_dim(s)),)
