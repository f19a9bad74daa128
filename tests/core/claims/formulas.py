"""The figures behind the claims, each from the formulas that kvroll itself plans with."""

from kvroll_core.advise import TracedRequest, profile_of
from kvroll_core.budget import Ask, Compressed, Latent, ModelShape, reckon
from kvroll_core.precision.formats import KV_FORMATS

GIB, GB = 2**30, 1e9
LLAMA_70B = ModelShape(80, 8192, 64, 8, 128, 28672, 128256, False, 131072)
LLAMA_70B_ALL_HEADS = ModelShape(80, 8192, 64, 64, 128, 28672, 128256, False, 131072)
LLAMA_2_7B = ModelShape(32, 4096, 32, 32, 128, 11008, 32000, False, 4096)
V3 = ModelShape(61, 7168, 128, 128, 192, 18432, 129280, False, 163840, latent=Latent(512, 64, 128, 128, 1536))
V32 = ModelShape(61, 7168, 128, 128, 192, 18432, 129280, False, 163840, latent=Latent(512, 64, 128, 128, 1536, 128, 64))
V4_PRO = ModelShape(
    61, 7168, 128, 1, 512, 2048, 129280, False, 2**20, compressed=Compressed((4,) * 30 + (128,) * 31, 512, 64, 128, 128)
)
# ShareGPT's mean lengths as the PagedAttention paper (arXiv 2309.06180) has them: prompts of 161 tokens, answers of
# 338; rows of 2048.
SHAREGPT_TOKENS, ROW_TOKENS = 161 + 338, 2048


def kv_bytes(shape: ModelShape, kv_cache: str, tokens: int, sessions: int = 1, residual_tokens: int = 0) -> float:
    """Bytes of that many sessions' pages."""
    ask = Ask("bf16", kv_cache, sessions, tokens, weights_bytes=0, residual_tokens=residual_tokens)
    return reckon(shape, ask).kv_bytes_total


def weights_bytes(shape: ModelShape, weights: str = "bf16") -> float:
    """Bytes of the weights."""
    return reckon(shape, Ask(weights, "bf16", 1, 32)).weights_bytes


def sessions_on_80_gb(shape: ModelShape, kv_cache: str, tokens: int, residual_tokens: int = 128) -> int:
    """The largest concurrency on a card of 80 GB, with a tenth left free."""
    ask = Ask("bf16", kv_cache, 1, tokens, device_bytes=int(80 * GB), residual_tokens=residual_tokens)
    found = reckon(shape, ask).max_sessions
    assert found is not None
    return found


def shrink(head_dim: int, kv_cache: str) -> float:
    """How many times fewer bytes than bf16 a dtype stores of a token's head."""
    return KV_FORMATS["bf16"].head_token_bytes(head_dim) / KV_FORMATS[kv_cache].head_token_bytes(head_dim)


def contiguous_waste() -> float:
    """Share of rows of the longest possible session that ShareGPT's mean session leaves empty."""
    return 1 - SHAREGPT_TOKENS / ROW_TOKENS


def paged_waste() -> float:
    """Share of 32-token pages that sessions of ShareGPT's mean length leave empty: on average half of the last page."""
    lengths = range(SHAREGPT_TOKENS - 160, SHAREGPT_TOKENS + 160)
    pages = sum(kv_bytes(LLAMA_2_7B, "bf16", n) for n in lengths)
    return 1 - sum(lengths) * 32 * 2 * 32 * 128 * 2 / pages


def peak_memory_ratio() -> float:
    """Peak memory of Llama-2-7B on one 80 GB card, filled with bf16 sessions of 4096 tokens, over the same sessions
    in kivi2.
    """
    sessions = sessions_on_80_gb(LLAMA_2_7B, "bf16", 4096)
    return _total(LLAMA_2_7B, "bf16", sessions) / _total(LLAMA_2_7B, "kivi2", sessions)


def _total(shape: ModelShape, kv_cache: str, sessions: int) -> float:
    return reckon(shape, Ask("bf16", kv_cache, sessions, 4096)).total_bytes


def batch_ratio(tokens: int, residual_tokens: int) -> float:
    """Sessions of Llama-2-7B that fit 80 GB in kivi2 over those in bf16."""
    kivi = sessions_on_80_gb(LLAMA_2_7B, "kivi2", tokens, residual_tokens)
    return kivi / sessions_on_80_gb(LLAMA_2_7B, "bf16", tokens)


def prefill_ratio(shared_share: float) -> float:
    """Prompt tokens over those that are left to compute, of a long run of prompts that share so much of their 3200
    tokens.
    """
    shared = int(3200 * shared_share)
    prompts = [[*range(shared), *range(n * 10_000, n * 10_000 + 3200 - shared)] for n in range(1, 401)]
    overlap = profile_of([TracedRequest(float(n), 1.0, 3200, 1, p) for n, p in enumerate(prompts)]).overlap
    assert overlap is not None
    return 1 / (1 - overlap)


def step_ratio_by_bytes(weights: str) -> float:
    """How many times fewer bytes a step of one Llama-2-7B session reads than in bf16: the bound that kernels stay
    under.
    """
    return weights_bytes(LLAMA_2_7B) / weights_bytes(LLAMA_2_7B, weights)
