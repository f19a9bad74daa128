"""Turns a GGUF file of the llama architecture into an HF-style folder: bf16 safetensors, config, tokenizer, chat template.

Facts about the format (tensor names, the rows of Q and K interleaved for GGML's rope) are llama.cpp's `convert_hf_to_gguf.py`; quantised
tensors are expanded by the `gguf` package itself.
"""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from kvroll_kernels.arrays import BF16, FP32, Array

_BLOCK_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL


class GgufError(ValueError):
    """The GGUF file is not one that this importer understands; the message names what it found."""


def import_gguf(source: Path, folder: Path) -> None:
    """Writes config.json, model.safetensors, tokenizer.json, tokenizer_config.json and generation_config.json into `folder`.

    Raises:
        GgufError: another architecture, tokenizer or pre-tokenizer than llama, gpt2 and smollm.
    """
    reader = gguf.GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    _expect(fields, "general.architecture", "llama")
    _expect(fields, "tokenizer.ggml.model", "gpt2")
    _expect(fields, "tokenizer.ggml.pre", "smollm")
    tensors = {_hf_name(t.name): _to_bf16(t, fields) for t in reader.tensors if t.name != "rope_freqs.weight"}
    config = hf_config(fields, tied="lm_head.weight" not in tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", config)
    _write_json(
        folder / "generation_config.json", {k: config[k] for k in ("bos_token_id", "eos_token_id", "pad_token_id")}
    )
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(fields))
    build_tokenizer(fields).save(str(folder / "tokenizer.json"))


def hf_config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    """The config.json of a llama-architecture GGUF."""
    heads = fields["llama.attention.head_count"]
    # GGUF keeps the epsilon as fp32; the shortest decimal that is the same fp32 is what the original config said.
    eps = float(str(np.float32(fields["llama.attention.layer_norm_rms_epsilon"])))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": eps,
        "rope_theta": fields["llama.rope.freq_base"],
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
    }


def build_tokenizer(fields: dict[str, Any]) -> Tokenizer:
    """SmolLM2's tokenizer: byte-level BPE, every digit on its own, no prefix space, control tokens special."""
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def unpermute(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Undoes the row order of Q and K for GGML's interleaved rope: [heads, d/2, 2] back to rotate-half [heads, 2, d/2]."""
    out, width = rows.shape
    return rows.reshape(heads, out // heads // 2, 2, width).swapaxes(1, 2).reshape(out, width)


def _to_bf16(tensor: Any, fields: dict[str, Any]) -> Array:
    values = gguf.dequantize(tensor.data, tensor.tensor_type)
    if tensor.name.endswith("attn_q.weight"):
        values = unpermute(values, fields["llama.attention.head_count"])
    elif tensor.name.endswith("attn_k.weight"):
        values = unpermute(values, fields["llama.attention.head_count_kv"])
    return np.ascontiguousarray(values, dtype=FP32).astype(BF16)


def _hf_name(name: str) -> str:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    prefix, _, rest = name.partition(".")
    layer, _, tail = rest.partition(".")
    if prefix == "blk" and tail in _BLOCK_NAMES:
        return f"model.layers.{layer}.{_BLOCK_NAMES[tail]}"
    raise GgufError(f"expected a llama tensor name, found {name!r}; only plain llama blocks are imported")


def _tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "model_max_length": fields["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": fields["tokenizer.chat_template"],
    }


def _expect(fields: dict[str, Any], key: str, wanted: str) -> None:
    if fields.get(key) != wanted:
        raise GgufError(
            f"expected {key} = {wanted!r}, found {fields.get(key)!r}; this importer knows only llama models like SmolLM2"
        )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
