"""Tiny random models written as HF folders, and what sessions on them emit: real in every respect but size."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from kvroll_core.precision.formats import kv_format
from kvroll_core.precision.sealing import OPEN_FORMAT, SEALED_FORMATS
from kvroll_worker.engine.engine import Engine
from kvroll_worker.request import Sampling, SessionFailure, SessionState, TokenEvent

TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 264,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "torch_dtype": "bfloat16",
    "initializer_range": 0.2,
}
CHAT = (
    "{% for m in messages %}<|s|>{{ m['role'] }}:{{ m['content'] }}<|e|>{% endfor %}"
    "{% if add_generation_prompt %}<|s|>assistant:{% endif %}"
)

MakeModel = Callable[..., Path]
MakeEngine = Callable[..., Engine]
Trace = list[tuple[int, str, str | None, tuple[tuple[int, float], ...]]]


def write_model(folder: Path, **overrides: Any) -> Path:
    """A random model of that config; the same config always gives the same weights."""
    config = {**TINY, **overrides}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT, "eos_token": "<|e|>"}))
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    save_file(random_weights(config), folder / "model.safetensors")
    return folder


def byte_tokenizer() -> Tokenizer:
    """One token a byte, then special tokens: every UTF-8 border can be hit."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t in ("<|s|>", "<|e|>", *(f"<|{i}|>" for i in range(6)))]
    )
    return tokenizer


def random_weights(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    dtype = getattr(torch, config["torch_dtype"])

    def draw(*shape: int, std: float = config["initializer_range"]) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * std).to(dtype)

    hidden, inter, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    tensors = {"model.embed_tokens.weight": draw(config["vocab_size"], hidden, std=0.5)}
    tensors["model.norm.weight"] = 1 + draw(hidden)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = draw(config["vocab_size"], hidden)
    attention_bias, mlp_bias = config.get("attention_bias", False), config.get("mlp_bias", False)
    for index in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{index}."
        for name, out, width in (
            ("q", queries, hidden),
            ("k", keys, hidden),
            ("v", keys, hidden),
            ("o", hidden, queries),
        ):
            tensors[f"{prefix}self_attn.{name}_proj.weight"] = draw(out, width)
            if attention_bias or (config["model_type"] == "qwen2" and name != "o"):
                tensors[f"{prefix}self_attn.{name}_proj.bias"] = draw(out)
        for name, out, width in (("gate", inter, hidden), ("up", inter, hidden), ("down", hidden, inter)):
            tensors[f"{prefix}mlp.{name}_proj.weight"] = draw(out, width)
            if mlp_bias:
                tensors[f"{prefix}mlp.{name}_proj.bias"] = draw(out)
        if config["model_type"] == "qwen3":
            tensors[f"{prefix}self_attn.q_norm.weight"] = 1 + draw(d)
            tensors[f"{prefix}self_attn.k_norm.weight"] = 1 + draw(d)
        if config.get("attention_sinks"):
            tensors[f"{prefix}self_attn.sinks"] = draw(config["num_attention_heads"], std=2.0)
        tensors[f"{prefix}input_layernorm.weight"] = 1 + draw(hidden)
        tensors[f"{prefix}post_attention_layernorm.weight"] = 1 + draw(hidden)
    return tensors


def memory_for(kv_cache: str, pages: int) -> int:
    """Bytes of so many usable pages of the tiny model; of a sealed format of about half as many open pages, and as much for sealed ones."""
    sealed = kv_cache in SEALED_FORMATS
    page_bytes = kv_format(OPEN_FORMAT if sealed else kv_cache).page_bytes(layers=2, kv_heads=2, head_dim=16)
    return 2 * (max(3, (pages - 2) // 2) + 1) * page_bytes if sealed else (pages + 1) * page_bytes


def state_of(session_id: str, prompt: list[int], **sampling: Any) -> SessionState:
    settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": 20, "logprobs": 3, "ignore_eos": True, **sampling}
    return SessionState(session_id, "tiny", list(prompt), sampling=Sampling(**settings))


def prompt_of(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(0, 256, (length,), generator=generator).tolist()
    return ids


def collect(engine: Engine, steps: int | None = None) -> dict[str, Trace]:
    """Steps until there is no work (or so many times), checking the books at each; what each session emitted."""
    found: dict[str, Trace] = {}
    while engine.has_work() and steps != 0:
        for event in engine.step():
            assert not isinstance(event, SessionFailure), event
            found.setdefault(event.session_id, []).append(trace_of(event))
        engine.check_integrity()
        steps = None if steps is None else steps - 1
    return found


def trace_of(event: TokenEvent) -> tuple[int, str, str | None, tuple[tuple[int, float], ...]]:
    return event.token_id, event.text, event.finish_reason, tuple((p.token_id, p.logprob) for p in event.logprobs)
