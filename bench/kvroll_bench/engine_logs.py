"""What engines printed about their KV caches in public logs, with the configuration of the model and the address of the page.

Every row was opened and read on 2026-12-01; a row that could not be opened is not here. `sizes_from` says where the model's sizes stand.
"""

from dataclasses import dataclass
from typing import Any

from kvroll_core.budget import Ask, Fit, ModelShape, Ranks, reckon

GIB, MIB = 2**30, 2**20
_SWAP_BYTES = 4 * GIB
"""vLLM's --swap-space of versions 0.2 to 0.7, for each rank: `# CPU blocks` are what it holds."""


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


LLAMA_3_8B = _llama(32, 4096, 32, 8, 128256, intermediate_size=14336)
LLAMA_2_7B = _llama(32, 4096, 32, 32, intermediate_size=11008, max_position_embeddings=4096)
LLAMA_30B = _llama(60, 6656, 52, 52, intermediate_size=17920, max_position_embeddings=2048)
PYTHIA = {"model_type": "gpt_neox", "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 8192,
          "vocab_size": 50304, "max_position_embeddings": 2048}  # fmt: skip
QWEN25_7B = {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
             "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768, "use_sliding_window": False,
             "sliding_window": 131072, "max_window_layers": 28}  # fmt: skip
QWEN25_1B = {**QWEN25_7B, "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2, "intermediate_size": 8960,
             "vocab_size": 151936, "tie_word_embeddings": True, "sliding_window": 32768, "max_window_layers": 21}  # fmt: skip
QWEN3_235B = {"model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 4,
              "head_dim": 128, "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
              "vocab_size": 151936, "max_position_embeddings": 40960}  # fmt: skip
DEEPSEEK_V32 = {"model_type": "deepseek_v32", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
                "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                "v_head_dim": 128, "index_head_dim": 128, "index_n_heads": 64, "intermediate_size": 18432, "vocab_size": 129280,
                "max_position_embeddings": 163840}  # fmt: skip
MINIMAX_M2 = {"model_type": "minimax_m2", "num_hidden_layers": 62, "hidden_size": 3072, "num_attention_heads": 48,
              "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 1536, "num_local_experts": 256, "num_experts_per_tok": 8,
              "vocab_size": 200064, "max_position_embeddings": 196608}  # fmt: skip


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
    sizes_from: str = ""

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
_NOTEBOOK = "https://github.com/sgl-project/sgl-project.github.io/blob/7ec3b51c4e515e09ed842b80bfb43bea71bca9bc/backend/speculative_decoding.ipynb"
_CI = "https://github.com/ggml-org/ci/blob/98ddcf63a088ee79717c1af0d7150458e411dff5/llama.cpp/0a/11f8b7b5c39fdf6e91ef9674bc68ff08681af7"
_DEMO = (
    "https://github.com/gyliu513/langX101/blob/0f4db3a49d95ea2c942c906190318975667e07c9/llm-d/llm-d-gpu-demo/README.md"
)
_CLASS = "the defaults of its class in transformers"
_CONFIG = "its config.json on huggingface.co"
_LOG = "the same log"

PRINTED = (
    Printed("vllm", "meta-llama/Meta-Llama-3-8B", f"{_VLLM}/issues/12330",
            "the rest of the memory reserved for KV Cache is 11.12GiB. # GPU blocks: 5691", 5691, _BLOCKS, LLAMA_3_8B,
            pool_bytes=int(11.12 * GIB), sizes_from=_CONFIG),
    Printed("vllm", "meta-llama/Meta-Llama-3-8B", f"{_VLLM}/issues/12330", "# GPU blocks: 5691, # CPU blocks: 2048", 2048, _BLOCKS,
            LLAMA_3_8B, pool_bytes=_SWAP_BYTES, sizes_from=_CONFIG),
    Printed("vllm", "Qwen2.5-7B, quantised weights", f"{_VLLM}/issues/13882", "# cuda blocks: 0, # CPU blocks: 4681", 4681, _BLOCKS,
            QWEN25_7B, pool_bytes=_SWAP_BYTES, sizes_from=_CONFIG),
    Printed("vllm", "Qwen/Qwen2.5-1.5B-Instruct", _DEMO, "Available KV cache memory: 0.56 GiB; GPU KV cache size: 20,992 tokens", 20992,
            "tokens", QWEN25_1B, pool_bytes=int(0.56 * GIB), sizes_from=_CONFIG),
    Printed("vllm", "MiniMax-M2.7-AWQ, tensor parallel 2", "https://github.com/eugr/spark-vllm-docker/issues/396",
            "To serve at least one request with the model's max seq len (196608), 23.25 GiB KV cache is needed", 23.25, "GiB", MINIMAX_M2,
            tokens=196608, tensor=2, sizes_from=_CLASS),
    Printed("sglang", "meta-llama/Llama-2-7b-chat-hf", _NOTEBOOK, "KV Cache is allocated. #tokens: 20480, K size: 5.00 GB, V size: 5.00 GB",
            5.0, "GiB", LLAMA_2_7B, tokens=20480, share=0.5, sizes_from=_CLASS),
    Printed("sglang", "meta-llama/Llama-3.1-8B-Instruct", _NOTEBOOK,
            "KV Cache is allocated. #tokens: 20480, K size: 1.25 GB, V size: 1.25 GB", 1.25, "GiB", LLAMA_3_8B, tokens=20480, share=0.5,
            sizes_from=_CONFIG),
    Printed("sglang", "Qwen3-235B-A22B-FP8, tensor parallel 4", f"{_VLLM}/issues/21348",
            "KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB", 8.23, "GiB", QWEN3_235B, tokens=367404, share=0.5,
            tensor=4, sizes_from=_CONFIG),
    Printed("sglang", "deepseek-ai/DeepSeek-V3.2-Exp, data parallel attention", "https://github.com/sgl-project/sglang/pull/11309",
            "KV Cache is allocated. #tokens: 975424, KV size: 43.67 GB", 43.67, "GiB", DEEPSEEK_V32, "fp8_e4m3", tokens=975424,
            sizes_from=_CLASS),
    Printed("sglang", "deepseek-ai/DeepSeek-V3.2-Exp, the pool before that change", "https://github.com/sgl-project/sglang/pull/11309",
            "#tokens: 1462784; KV size including index is actually 65.49 GB", 65.49, "GiB", DEEPSEEK_V32, "fp8_e4m3", tokens=1462784,
            sizes_from=_CLASS),
    Printed("llama.cpp", "Pythia 1.4B", f"{_CI}/ggml-2-x86-cpu/pythia_1_4b-tg-f16.log",
            "n_ctx = 2048; KV self size  =  384.00 MiB, K (f16):  192.00 MiB, V (f16):  192.00 MiB", 384.0, "MiB", PYTHIA, "fp16",
            tokens=2048, sizes_from=_LOG),
    Printed("llama.cpp", "LLaMA 30B, fp32 cache", "https://github.com/abetlen/llama-cpp-python/issues/66",
            "n_ctx = 512; kv self size  = 1560.00 MB", 1560.0, "MiB", LLAMA_30B, "fp32", tokens=512, sizes_from=_LOG),
)  # fmt: skip
