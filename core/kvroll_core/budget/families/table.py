"""The families that we can count, by `model_type`, each with how its layers are told apart, what they keep, and where that was read.

`defaults.json` holds what the configuration class of each fills in, and the words of the families for ours; `bench/budget.py --defaults`
writes it anew from the installed `transformers`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from kvroll_core.budget.families import layers as by
from kvroll_core.budget.families import parts as of
from kvroll_core.budget.families.layers import (
    CHUNKED,
    CONV,
    FULL,
    HYBRID,
    HYBRID_SLIDING,
    INDEXED,
    LINEAR,
    SLIDING,
    Rule,
)
from kvroll_core.budget.families.parts import Parts

_READ = json.loads(resources.files(__package__).joinpath("defaults.json").read_text(encoding="utf-8"))
_TRANSFORMERS = "transformers, models/{}"


@dataclass(frozen=True)
class Family:
    """A `model_type`. `kinds`: those that its layers have; `listed`: its code reads `layer_types`; `shares_kv`: the last
    `num_kv_shared_layers` layers read the cache of earlier ones; `doubled`: a layer has two attentions; `counted`: the formula for its
    weights was compared with the parameters of `transformers`; `fields`: keys of its class that tell of a cache.
    """

    name: str
    attention: str
    parts: Parts
    rule: Rule = field(default=by.all_of(FULL))
    kinds: tuple[str, ...] = (FULL,)
    listed: bool = False
    shares_kv: bool = False
    doubled: bool = False
    source: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[str, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether its weights are counted by the formula."""
        return self.name in _COUNTED


def _words(text: str) -> list[str]:
    return text.split()


_FULL_HEADS = _words(
    """
    apertus apertus1p5_text arcee aria_text biogpt bitnet bloom codegen cohere ctrl diffllama doge ernie4_5
    ernie4_5_moe exaone flex_olmo gemma glm glm4 glm4_moe glm4v_text glm4v_moe_text gpt-sw3 gpt2 gpt_neo gpt_neox
    gpt_neox_japanese gptj granite granitemoe granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax
    internlm3 iquestcoder jais2 jetmoe llama minimax_m2 mpt nanochat nemotron olmo olmo2 olmoe opt persimmon phi
    qwen3_vl_text qwen3_vl_moe_text sarvam_moe seed_oss solar_open stablelm xglm
    """
)
_WINDOW_HEADS = _words(
    """
    mistral mixtral phi3 phimoe starcoder2 ministral3 moshi
    """
)
_LATENTS = _words(
    """
    deepseek_v2 deepseek_v3 kimi_k2 mistral4 glm4_moe_lite axk1 sarvam_mla youtu minicpm3
    """
)
_INDEXED_LATENTS = _words(
    """
    deepseek_v32 glm_moe_dsa axk2 hy_v4
    """
)
_MIXED: dict[str, Rule] = {
    "afmoe": by.full_every("global_attn_every_n_layers", 4),
    "beam": by.last_full(by.full_every(6)),
    "cohere2": by.full_every("sliding_window_pattern", 4),
    "cohere2_moe": by.cohere2_moe,
    "cwm": by.full_every(4, offset=0),
    "dots1": by.dots1,
    "exaone4": by.windowed_every(4),
    "exaone_moe": by.windowed_every(4),
    "flint": by.flint,
    "gemma2": by.full_every(2),
    "gemma3_text": by.full_every("sliding_window_pattern", 6),
    "gpt_oss": by.full_every(2),
    "granite_swa": by.full_every(4, offset=0),
    "granitemoe_swa": by.full_every(4, offset=0),
    "kolibri1": by.full_every(5),
    "laguna": by.all_of(FULL),
    "mellum": by.all_of(FULL),
    "ministral": by.with_window,
    "olmo3": by.full_every(4),
    "qwen2": by.qwen2,
    "qwen2_moe": by.qwen2_moe,
    "qwen2_vl_text": by.qwen2,
    "qwen2_5_vl_text": by.qwen2,
    "qwen3": by.qwen2,
    "smollm3": by.smollm3,
    "vaultgemma": by.full_every(2),
}
_DELTA_NETS = _words(
    """
    qwen3_next qwen3_5_text qwen3_5_moe_text
    """
)
_BY_MAMBA2 = {"bamba": by.bamba, "granitemoehybrid": by.all_of(LINEAR), "nemotron_h": by.nemotron_h}


def _families() -> list[Family]:
    heads, mla = by_kind_of(of.heads), by_kind_of(of.latent)
    mixed = (FULL, SLIDING)
    found = [Family(name, "heads", heads) for name in _FULL_HEADS]
    found += [Family(name, "heads, one window", heads, by.with_window, mixed) for name in _WINDOW_HEADS]
    found += [Family("qwen3_moe", "heads, one window", heads, by.with_switched_window, mixed)]
    found += [Family(n, "heads, windows by layer", heads, rule, mixed, listed=True) for n, rule in _MIXED.items()]
    found += [Family(name, "latent (MLA)", mla) for name in _LATENTS]
    found += [
        Family(n, "latent (MLA), indexer", mla, by.all_of(INDEXED), (INDEXED, FULL), listed=True)
        for n in _INDEXED_LATENTS
    ]
    found += [
        Family("modernbert-decoder", "heads, windows by layer", by_kind_of(of.modernbert),
               by.full_every("global_attn_every_n_layers", 3, offset=0), mixed, listed=True),
        Family("longcat_flash", "latent (MLA), two a layer", mla, doubled=True),
        Family("falcon", "heads", by_kind_of(of.falcon)),
        Family("gpt_bigcode", "heads", by_kind_of(of.one_query_group)),
        Family("dbrx", "heads", by_kind_of(of.dbrx)),
        Family("llama4_text", "heads, chunks by layer", heads, by.llama4, (FULL, CHUNKED), listed=True),
        Family("gemma3n_text", "heads, windows, shared KV", heads, by.full_every(5), mixed, listed=True, shares_kv=True),
        *(
            Family(name, "heads of two sizes, windows, shared KV", by_kind_of(of.gemma4), by.last_full(by.full_every(6)), mixed,
                   listed=True, shares_kv=True)
            for name in ("gemma4_text", "gemma4_unified_text")
        ),
        Family("mimo_v2_flash", "heads of two sizes, windows", by_kind_of(of.mimo_v2), by.mimo_v2, mixed, listed=True),
        Family("inkling_text", "heads, windows, convolutions", by_kind_of(of.inkling, of_nothing), by.inkling,
               (HYBRID, HYBRID_SLIDING), listed=True),
        Family("inkling2_text", "heads, windows, convolutions", by_kind_of(of.inkling, of_nothing), by.inkling,
               (HYBRID, HYBRID_SLIDING), listed=True),
    ]  # fmt: skip
    every = by.full_every("full_attention_interval", 4, LINEAR)
    delta = by_kind_of(of.heads, of.delta_net)
    found += [Family(n, "heads, gated DeltaNet", delta, every, (FULL, LINEAR), listed=True) for n in _DELTA_NETS]
    found += [
        Family("olmo_hybrid", "heads, gated DeltaNet", delta, by.full_every(4, other=LINEAR), (FULL, LINEAR), listed=True),
        Family("lara_mini", "heads, windows, gated DeltaNet", delta, by.lara_mini, (FULL, SLIDING, LINEAR), listed=True),
        Family("kimi_linear", "latent (MLA), Kimi Delta Attention", by_kind_of(of.latent, of.kimi_delta), by.kimi_linear,
               (FULL, LINEAR), listed=True),
        Family("bailing_hybrid", "latent (MLA), delta attention", by_kind_of(of.latent, of.bailing_delta),
               by.full_every("layer_group_size", 6, LINEAR), (FULL, LINEAR), listed=True),
        Family("minimax", "heads, lightning attention", by_kind_of(of.heads, of.lightning), by.minimax, (FULL, LINEAR), listed=True),
        Family("jamba", "heads, Mamba", by_kind_of(of.derived_heads, of.mamba1), by.jamba, (FULL, LINEAR)),
        Family("mamba", "Mamba", by_kind_of(of.heads, of.mamba1_alone), by.all_of(LINEAR), (LINEAR,)),
        Family("falcon_mamba", "Mamba", by_kind_of(of.heads, of.mamba1_alone), by.all_of(LINEAR), (LINEAR,)),
        Family("mamba2", "Mamba-2", by_kind_of(of.heads, of.mamba2), by.all_of(LINEAR), (LINEAR,)),
        *(
            Family(n, "heads, Mamba-2", by_kind_of(of.heads, of.mamba2), rule, (FULL, LINEAR), listed=n != "bamba")
            for n, rule in _BY_MAMBA2.items()
        ),
        Family("falcon_h1", "heads and Mamba-2 in each layer", by_kind_of(of.heads, of.mamba2), by.all_of(HYBRID), (HYBRID,)),
        Family("zamba", "shared heads, Mamba", by_kind_of(of.wide_heads, of.mamba1), by.zamba, (LINEAR, HYBRID), listed=True),
        Family("zamba2", "shared heads, Mamba-2", by_kind_of(of.wide_heads, of.mamba2), by.zamba2, (LINEAR, HYBRID), listed=True),
        Family("lfm2", "heads, short convolutions", by_kind_of(of.heads, of.short_conv), by.lfm2, (FULL, CONV), listed=True),
        Family("lfm2_moe", "heads, short convolutions", by_kind_of(of.heads, of.short_conv), by.lfm2, (FULL, CONV), listed=True),
        Family("lfm3", "heads, windows, short convolutions", by_kind_of(of.heads, of.short_conv), by.lfm3, (FULL, SLIDING, CONV),
               listed=True),
        Family("recurrent_gemma", "heads with a window, RG-LRU", by_kind_of(of.heads, of.griffin), by.recurrent_gemma,
               (SLIDING, LINEAR)),
        Family("deepseek_v4", "compressed latents", by_kind_of(of_nothing)),
    ]  # fmt: skip
    return found


def of_nothing(*_: object) -> tuple[()]:
    """No state besides: the part before holds it."""
    return ()


by_kind_of = of.by_kind
_REMOTE = {
    "internlm2": ("heads", "internlm/internlm2-chat-7b, modeling_internlm2.py", by_kind_of(of.heads), {}),
    "baichuan": ("heads", "baichuan-inc/Baichuan2-13B-Chat, modeling_baichuan.py", by_kind_of(of.derived_heads), {}),
    "minicpm": ("heads", "openbmb/MiniCPM-2B-sft-bf16, modeling_minicpm.py", by_kind_of(of.derived_heads), {}),
    "deepseek": ("heads", "deepseek-ai/deepseek-moe-16b-base, modeling_deepseek.py", by_kind_of(of.derived_heads), {}),
    "qwen": ("heads", "Qwen/Qwen-7B, modeling_qwen.py", by_kind_of(of.heads), {"max_position_embeddings": "seq_length"}),
    "chatglm": (
        "heads",
        "THUDM/chatglm3-6b, modeling_chatglm.py",
        by_kind_of(of.chatglm),
        {"num_hidden_layers": "num_layers", "vocab_size": "padded_vocab_size", "max_position_embeddings": "seq_length",
         "intermediate_size": "ffn_hidden_size"},
    ),
    "nemotron-nas": ("heads by layer, no-op layers", "nvidia/Llama-3_3-Nemotron-Super-49B-v1, modeling_decilm.py",
                     by_kind_of(of.nas_block), {}),
}  # fmt: skip
_TEXT_OF = {
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "minimax_text_01": "minimax",
    "minimax_m1": "minimax",
}
"""Words of files on the hub that are older than the class that reads them, and hold the sizes at the top level."""


def _complete(family: Family) -> Family:
    read = _READ["families"].get(family.name, {})
    source = family.source or _TRANSFORMERS.format(read.get("module", family.name))
    return Family(
        **{
            **vars(family),
            "source": source,
            "defaults": read.get("defaults", {}),
            "names": read.get("names", {}),
            "fields": tuple(read.get("fields", ())),
        }
    )


_COUNTED = frozenset(_READ["counted"])
FAMILIES: dict[str, Family] = {f.name: _complete(f) for f in _families()}
FAMILIES |= {
    name: Family(name, attention, parts, source=source, names=names)
    for name, (attention, source, parts, names) in _REMOTE.items()
}
FAMILIES |= {
    word: Family(**{**vars(FAMILIES[text]), "name": word, "source": f"{FAMILIES[text].source}, as {text}"})
    for word, text in _TEXT_OF.items()
}
ENCODER_DECODERS = frozenset(_READ["encoder_decoders"])
ENCODERS = frozenset(_READ["encoders"]) - FAMILIES.keys()
WRAPPED: dict[str, str] = _READ["wrappers"]
"""The family of the text model of a wrapper whose `text_config` does not say it."""
ARCHITECTURES: dict[str, str] = _READ["architectures"]
"""The `model_type` by the class that generates text."""
REFUSED = {
    "blt": "its latent transformer runs over patches of bytes, not over tokens",
    "cohere_compass_text": "its attention is bidirectional: an embedding model",
    "cpmant": "it keeps prompt tokens of its own beside those of the session",
    "dory": "its recurrent layers keep KV for every loop",
    "dots3_note": "its layers have latents of two sizes (per_layer_config)",
    "dots3_note_text": "its layers have latents of two sizes (per_layer_config)",
    "emu3_text_model": "it generates images token by token",
    "gemma4_assistant": "a draft model that reads the cache of another one",
    "gemma4_unified_assistant": "a draft model that reads the cache of another one",
    "hrm_text": "its stacks of layers run again and again",
    "inkling2_loop_text": "its layers loop",
    "minimax_m3_vl_text": "its sparse layers keep an index of blocks",
    "mllama": "its cross-attention layers keep K and V of images",
    "mllama_text_model": "its cross-attention layers keep K and V of images",
    "openai-gpt": "it has no cache in transformers",
    "qwen4_exp": "its sparse layers keep compressed indexer keys",
    "qwen4_exp_text": "its sparse layers keep compressed indexer keys",
    "rwkv": "its state is not counted",
    "xlstm": "its state is not counted",
    "zaya": "its compressed convolutional attention is not counted",
}
"""Decoders that we know and do not count, and why."""
