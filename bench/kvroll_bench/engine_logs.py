"""What engines printed about their KV caches in public logs, with the configuration of the model and the address of the page."""

from dataclasses import dataclass
from typing import Any

from kvroll_core.budget import Ask, Fit, ModelShape, Ranks, reckon

GIB, MIB = 2**30, 2**20
_SWAP_BYTES = 4 * GIB
"""vLLM's --swap-space of those versions, for each rank."""


def _llama(layers: int, hidden: int, heads: int, kv_heads: int, vocab: int = 32000, **more: Any) -> dict[str, Any]:
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }
    return {
        "model_type": "llama",
        **sizes,
        "intermediate_size": 4 * hidden,
        "vocab_size": vocab,
        "max_position_embeddings": 8192,
        **more,
    }


LLAMA_3_8B = _llama(32, 4096, 32, 8, 128256)
LLAMA_3_70B = _llama(80, 8192, 64, 8, 128256)
LLAMA_2_7B = _llama(32, 4096, 32, 32)
LLAMA_30B = _llama(60, 6656, 52, 52)
MISTRAL_7B = {**_llama(32, 4096, 32, 8, 32002), "model_type": "mistral", "sliding_window": None}
OPT_125M = {"model_type": "opt", "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "ffn_dim": 3072,
            "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768}  # fmt: skip
PHI_2 = {"model_type": "phi", "num_hidden_layers": 32, "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 32,
         "intermediate_size": 10240, "vocab_size": 51200, "max_position_embeddings": 2048}  # fmt: skip
QWEN3_235B = {"model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 4,
              "head_dim": 128, "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
              "vocab_size": 151936, "max_position_embeddings": 40960}  # fmt: skip
DEEPSEEK_V32 = {"model_type": "deepseek_v32", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
                "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                "v_head_dim": 128, "index_head_dim": 128, "index_n_heads": 64, "intermediate_size": 18432, "vocab_size": 129280,
                "max_position_embeddings": 163840}  # fmt: skip
LLAVA = {"model_type": "llava", "text_config": LLAMA_2_7B, "vision_config": {"model_type": "clip_vision_model"}}


@dataclass(frozen=True)
class Printed:
    """A line of a log: `said` in `unit`, of a model with a config, and what is asked of our arithmetic to say the same.

    `figure`: `pool_tokens` of a pool of `pool_bytes` (blocks of 16 in vLLM), or bytes of `tokens` tokens (`stored`), a share of them in
    `share` (K alone: a half).
    """

    engine: str
    model: str
    source: str
    line: str
    said: float
    unit: str
    config: dict[str, Any]
    kv_cache: str = "bf16"
    pool_bytes: int = 0
    tokens: int = 0
    share: float = 1.0
    tensor: int = 1

    def ours(self) -> float:
        """The same figure by our arithmetic."""
        shape = ModelShape.from_config(self.config)
        ask = Ask("bf16", self.kv_cache, 1, self.tokens or 16, weights_bytes=1, ranks=Ranks(tensor=self.tensor), page_tokens=16,
                  kv_memory_bytes=self.pool_bytes or None)  # fmt: skip
        fit: Fit = reckon(shape, ask)
        if self.pool_bytes:
            assert fit.pool_tokens is not None
            return fit.pool_tokens / 16 if self.unit == "blocks of 16 tokens" else float(fit.pool_tokens)
        return fit.rank_kv_bytes_per_token * self.tokens * self.share / {"GiB": GIB, "MiB": MIB}[self.unit]

    @property
    def error(self) -> float:
        """How far ours is from what the engine said, as a share."""
        return abs(self.ours() / self.said - 1)


_BLOCKS = "blocks of 16 tokens"
_VLLM = "https://github.com/vllm-project/vllm"
_CPU = "# CPU blocks: {} (4 GiB of swap space)"


def _swap(model: str, source: str, said: int, config: dict[str, Any], tensor: int = 1) -> Printed:
    return Printed(
        "vllm", model, source, _CPU.format(said), said, _BLOCKS, config, pool_bytes=_SWAP_BYTES, tensor=tensor
    )


PRINTED = (
    Printed("vllm", "meta-llama/Llama-3.1-8B-Instruct", f"{_VLLM}/issues/10517", "kv_cache_size=3.81GiB; # GPU blocks: 1952", 1952, _BLOCKS,
            LLAMA_3_8B, pool_bytes=int(3.81 * GIB)),
    Printed("vllm", "meta-llama/Llama-3.1-8B-Instruct", f"{_VLLM}/issues/10517",
            "kv_cache_size=2.89GiB; maximum number of tokens that can be stored in KV cache (23648)", 23648, "tokens", LLAMA_3_8B,
            pool_bytes=int(2.89 * GIB)),
    _swap("facebook/opt-125m", f"{_VLLM}/pull/4454", 7281, OPT_125M),
    _swap("meta-llama/Meta-Llama-3-8B-Instruct", f"{_VLLM}/pull/4454", 2048, LLAMA_3_8B),
    _swap("teknium/OpenHermes-2.5-Mistral-7B", f"{_VLLM}/pull/4454", 2048, MISTRAL_7B),
    _swap("TheBloke/Llama-2-7B-GPTQ", f"{_VLLM}/pull/4454", 512, LLAMA_2_7B),
    _swap("TheBloke/zephyr-7B-beta-AWQ", f"{_VLLM}/pull/4454", 2048, MISTRAL_7B),
    _swap("mgoin/phi-2-super-marlin", f"{_VLLM}/pull/4454", 819, PHI_2),
    _swap("llava-hf/llava-1.5-7b-hf", f"{_VLLM}/issues/6623", 512, LLAVA),
    _swap("Llama-3 70B, tensor parallel 2", "https://github.com/OpenRLHF/OpenRLHF/issues/336", 1638, LLAMA_3_70B, tensor=2),
    Printed("sglang", "Qwen3-235B-A22B-FP8, tensor parallel 4", f"{_VLLM}/issues/21348",
            "KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB", 8.23, "GiB", QWEN3_235B, tokens=367404, share=0.5,
            tensor=4),
    Printed("sglang", "deepseek-ai/DeepSeek-V3.2-Exp, data parallel attention", "https://github.com/sgl-project/sglang/pull/11309",
            "KV Cache is allocated. #tokens: 975424, KV size: 43.67 GB", 43.67, "GiB", DEEPSEEK_V32, "fp8_e4m3", tokens=975424),
    Printed("sglang", "deepseek-ai/DeepSeek-V3.2-Exp, the pool before that change", "https://github.com/sgl-project/sglang/pull/11309",
            "#tokens: 1462784, KV size including index is actually 65.49", 65.49, "GiB", DEEPSEEK_V32, "fp8_e4m3", tokens=1462784),
    Printed("llama.cpp", "alpaca 30B", "https://github.com/abetlen/llama-cpp-python/issues/66", "n_ctx = 512; kv self size  = 1560.00 MB",
            1560.0, "MiB", LLAMA_30B, "fp32", tokens=512),
)  # fmt: skip
