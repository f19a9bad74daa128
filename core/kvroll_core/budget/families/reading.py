"""Reads a config.json into what each layer keeps: finds the family, refuses what is none that we know, and says what was derived."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroll_core.budget.cache import KvGroup
from kvroll_core.budget.families import layers as kinds
from kvroll_core.budget.families import parts
from kvroll_core.budget.families.settings import Settings, ShapeError, shown
from kvroll_core.budget.families.table import (
    ARCHITECTURES,
    ENCODER_DECODERS,
    ENCODERS,
    FAMILIES,
    REFUSED,
    WRAPPED,
    Family,
)

FULL_ATTENTION = "full-attention"
ASSUMPTIONS = (FULL_ATTENTION,)
_OURS = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""Architectures that our own engine runs: it goes by them, so they count before `model_type`."""
_IGNORED = (
    "sliding_window",
    "sliding_window_pattern",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "attention_chunk_size",
    "window_size",
)
_TELLING = re.compile(
    r"lora_rank|latent|mamba|ssm|linear_(attn|num|key|value|head)|recurrent|compress|kv_shared|global_head_dim|swa_|interval"
    r"|attn_(type|every|layer)|global_attn|index_(n_heads|head_dim)|indexer|hybrid|state_size|layers?_block|block_(types|configs)"
    r"|sliding|window|cross_attention_layers|v_head_dim|kv_head"
)
_SAID = ("num_attention_heads", "vocab_size", "intermediate_size")
"""Sizes that a file says at its top level; a `text_config` may leave them to its class (Gemma 3 does)."""
_SILENT = re.compile(r"vision|audio|dropout|init|lora_alpha|rescale|index_topk|router|expert|moe_|interleave")


@dataclass(frozen=True)
class Read:
    """What was read. `layers`: what each keeps; `derived`: in sentences, what the file does not say itself; `ignored`: what it says and
    the family's code does not look at; `assumed`: the assumption that stands for the family, None where it is known.
    """

    family: Family
    settings: Settings
    layers: tuple[tuple[KvGroup, ...], ...]
    derived: tuple[str, ...]
    ignored: tuple[str, ...]
    assumed: str | None = None


def text_config(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The family's word and the object that holds the sizes: of a model with vision or audio, its text model's.

    Raises:
        ShapeError: not an object.
    """
    if not isinstance(config, Mapping):
        raise ShapeError(f"expected an object with the keys of a config.json, found {type(config).__name__}")
    word = _word(config)
    for key in ("text_config", "llm_config", "language_config"):
        inner = config.get(key)
        if inner is None:
            continue
        if not isinstance(inner, Mapping):
            raise ShapeError(f"{key}: expected an object, found {shown(inner)}")
        if inner:
            return _word(inner) or WRAPPED.get(word, ""), inner
    return word, config


def _word(config: Mapping[str, Any]) -> str:
    listed = config.get("architectures")
    architecture = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], str) else ""
    word = config.get("model_type")
    if word is not None and not isinstance(word, str):
        raise ShapeError(f"model_type: expected a word, found {shown(word)}")
    return _OURS.get(architecture) or word or ARCHITECTURES.get(architecture, "")


def read_model(config: Mapping[str, Any], assume: str | None = None) -> Read:
    """What each layer of the model keeps. `assume`: take every layer for full attention of plain heads, where the family is unknown: an
    upper bound for windows, a wrong figure for anything else.

    Raises:
        ShapeError: a family that we do not count, or a value that cannot be.
    """
    word, text = text_config(config)
    known = FAMILIES.get(word)
    if known is None and assume is None:
        raise ShapeError(_refusal(word, config, text))
    if assume is not None:
        return _assumed(word, text, assume)
    assert known is not None
    defaults = known.defaults if text is not config else {k: v for k, v in known.defaults.items() if k not in _SAID}
    settings = Settings(text, defaults, known.names)
    if settings.flag("is_encoder_decoder"):
        raise ShapeError(f"model_type {word} with is_encoder_decoder: expected a decoder-only model")
    if text.get("use_bidirectional_attention") in (True, "all"):
        raise ShapeError(
            "use_bidirectional_attention: expected a model that looks back alone; one that embeds keeps no cache"
        )
    if known.rule in kinds.SWITCHED and not settings.flag("use_sliding_window"):
        # As their classes do: a list of sliding layers beside it then has no length.
        settings = Settings({**text, "sliding_window": None}, defaults, known.names)
    ignored = _unread(known, text)
    count = _layer_count(known, settings)
    if known.name == "nemotron-nas":
        settings.listed("block_configs", dict, count)
    words = kinds.kinds_of(settings, count, known.rule, known.kinds, listed=known.listed)
    if known.name.startswith("gemma4") and words:
        words[-1] = kinds.FULL
    if len(set(words)) > 1 and not (known.listed and settings.has("layer_types")):
        counts = ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
        settings.derived.append(f"layers: {counts}: by the rule of {known.name}, the file has no layer_types")
    kept = settings.optional("num_kv_shared_layers", least=0) or 0 if known.shares_kv else 0
    if kept >= count:
        raise ShapeError(f"num_kv_shared_layers: expected fewer than the {count} layers, found {kept}")
    each = _by_layer(settings, text, known, count)
    found = [known.parts(each[i], kind, i) if i < count - kept else () for i, kind in enumerate(words)]
    if kept:
        settings.derived.append(f"the last {kept} layers read the cache of earlier ones (num_kv_shared_layers)")
    return Read(
        known, settings, tuple(found) * (2 if known.doubled else 1), tuple(dict.fromkeys(settings.derived)), ignored
    )


def _by_layer(settings: Settings, text: Mapping[str, Any], family: Family, count: int) -> list[Settings]:
    """The settings of each layer: `per_layer_config`, by index, over those of all."""
    own = settings.raw("per_layer_config")
    if own is None:
        return [settings] * count
    if not isinstance(own, Mapping) or not all(isinstance(v, Mapping) for v in own.values()):
        raise ShapeError(f"per_layer_config: expected an object of objects, found {shown(own)}")
    if strange := [k for k in own if not (isinstance(k, str) and k.isdecimal() and int(k) < count)]:
        raise ShapeError(f"per_layer_config: expected indices of {count} layers, found {shown(strange[0])}")
    by_index = {int(k): v for k, v in own.items()}
    return [
        Settings({**text, **by_index[i]}, family.defaults, family.names) if i in by_index else settings
        for i in range(count)
    ]


def _layer_count(family: Family, settings: Settings) -> int:
    if family.name == "nemotron_h":
        words = settings.listed("layers_block_type", str) or settings.listed("layer_types", str)
        pattern = settings.raw("hybrid_override_pattern")
        if words or isinstance(pattern, str):
            return settings.checked("num_hidden_layers", len(words or pattern))
    return settings.count("num_hidden_layers")


def _assumed(word: str, text: Mapping[str, Any], assume: str) -> Read:
    if assume not in ASSUMPTIONS:
        raise ShapeError(f"--assume {assume}: expected one of {', '.join(ASSUMPTIONS)}")
    if word in ENCODERS or word in ENCODER_DECODERS:
        raise ShapeError(f"model_type {word} is no decoder-only model: --assume {assume} cannot make it one")
    family = Family(
        word or "unknown", "assumed: full attention of plain heads", parts.by_kind(parts.heads), source="assumed"
    )
    names = FAMILIES[word].names if word in FAMILIES else {}
    settings = Settings(text, {}, names)
    count = settings.count("num_hidden_layers")
    found = tuple(family.parts(settings, kinds.FULL, i) for i in range(count))
    return Read(family, settings, found, tuple(dict.fromkeys(settings.derived)), (), assume)


def _unread(family: Family, text: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys that the family's code does not look at.

    Raises:
        ShapeError: one of them tells of a cache that this family has not.
    """
    read = {*family.fields, *family.defaults, *family.names, *family.names.values(), *_keys_of(family)}
    strange = [
        k
        for k, v in text.items()
        if isinstance(k, str) and not k.startswith("_") and k not in read and v not in (None, False, 0, "", [], {})
    ]
    told = [k for k in strange if _TELLING.search(k) and not _SILENT.search(k)]
    if refused := [k for k in told if k not in _IGNORED]:
        raise ShapeError(
            f"model_type {family.name} does not read {', '.join(sorted(refused)[:6])}: such keys tell of another cache than this family's;"
            f" expected another model_type, or --assume {FULL_ATTENTION} for a bound"
        )
    return tuple(f"{k} {shown(text[k])} ignored: the code of {family.name} does not look at it" for k in told)


def _keys_of(family: Family) -> tuple[str, ...]:
    found = ["layer_types", "layers_block_type"] if family.listed else []
    found += ["sliding_window"] if kinds.SLIDING in family.kinds or kinds.HYBRID_SLIDING in family.kinds else []
    found += ["num_kv_shared_layers"] if family.shares_kv else []
    return (*found, "num_key_value_heads", "head_dim", *_KNOWN.get(family.name, ()))


_KNOWN = {
    "cohere2": ("sliding_window_pattern",),
    "gemma3_text": ("sliding_window_pattern",),
    "qwen3_next": ("full_attention_interval",),
    "qwen3_5_text": ("full_attention_interval", "mamba_ssm_dtype"),
    "qwen3_5_moe_text": ("full_attention_interval", "mamba_ssm_dtype"),
    "gemma4_text": ("global_head_dim", "num_global_key_value_heads"),
    "gemma4_unified_text": ("global_head_dim", "num_global_key_value_heads"),
    "modernbert-decoder": ("global_attn_every_n_layers", "local_attention"),
    "mimo_v2_flash": (
        "hybrid_layer_pattern", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim", "swa_num_attention_heads",
        "sliding_window_size", "hybrid_block_size", "swa_rope_theta",
    ),
    "kimi_linear": ("linear_attn_config", "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"),
    "bailing_hybrid": ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"),
    "minimax_text_01": ("attn_type_list",),
    "minimax_m1": ("attn_type_list",),
    "minimax": ("attn_type_list",),
    "nemotron_h": ("hybrid_override_pattern", "mamba_n_groups", "mamba_d_conv", "mamba_expand", "mamba_dt_min", "mamba_dt_max",
                   "mamba_dt_limit", "mamba_dt_init_floor", "mamba_conv_bias", "mamba_chunk_size", "mtp_hybrid_override_pattern",
                   "attention_head_dim"),
    "nemotron-nas": ("block_configs",),
    "zamba2": ("hybrid_layer_ids", "mamba_headdim"),
    "deepseek_v4": ("compress_ratios", "compress_rates", "index_head_dim", "index_n_heads", "sliding_window", "compress_rope_theta"),
    "lfm2": ("full_attn_idxs",),
    "chatglm": ("multi_query_group_num",),
    "inkling_text": ("local_layer_ids",),
    "inkling2_text": ("local_layer_ids",),
}  # fmt: skip
"""Keys that a family's class takes without declaring them."""


def _refusal(word: str, config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    seen = sorted(k for k in text if isinstance(k, str) and (_TELLING.search(k) or k in _SIZES))[:14]
    keys = f"; keys seen: {', '.join(seen)}" if seen else ""
    bound = f"; for an upper bound from heads alone: --assume {FULL_ATTENTION}"
    if not word:
        return f"expected model_type, or an architecture that we know, found {shown(config.get('architectures'))}{keys}{bound}"
    if word in ENCODER_DECODERS:
        return (
            f"model_type {word[:60]} is an encoder-decoder: expected a decoder-only model, whose cache alone we count"
        )
    if word in ENCODERS:
        return f"model_type {word[:60]} is an encoder: it keeps no KV cache; expected a decoder-only model"
    if why := REFUSED.get(word):
        return f"model_type {word} is not counted: {why}{bound}"
    if word in WRAPPED:
        return f"model_type {word} holds its sizes in text_config: expected them there, found none"
    return f"model_type {word[:60]!r} is unknown: its cache is not counted{keys}{bound}"


_SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size")
