"""Every number that is claimed for the levers that kvroll turns. Rendered into docs/claims.md, checked by
test_claims.py.
"""

from tests.core.claims import formulas as f
from tests.core.claims.claim import Bench, Claim, Figure

GIB, GB, KIB = 2**30, 1e9, 2**10

CLAIMS = (
    Claim(
        "token-320-kb",
        "A token of Llama-3.1-70B costs 320 KB of KV cache",
        "2 x 80 layers x 8 KV heads x 128 x 2 bytes",
        (Figure("bf16, a token", "KiB", 320, lambda: f.kv_bytes(f.LLAMA_70B, "bf16", 32) / 32 / KIB),),
    ),
    Claim(
        "fleet-160-gb",
        "128 sessions of 4096 tokens take 160 GB, more than the 140 GB of the weights",
        "the same model in bf16",
        (
            Figure("KV", "GiB", 160, lambda: f.kv_bytes(f.LLAMA_70B, "bf16", 4096, 128) / GIB),
            Figure("weights", "GB", 140, lambda: f.weights_bytes(f.LLAMA_70B) / GB, within=0.01),
        ),
        remark="160 is of GiB (171.8 GB), 140 of GB (131.4 GiB): the gap is larger than it reads.",
    ),
    Claim(
        "gqa-8x",
        "Without grouped queries the cache would be 8 x as large",
        "64 query heads, 8 KV heads",
        (
            Figure(
                "64 KV heads over 8",
                "x",
                8,
                lambda: f.kv_bytes(f.LLAMA_70B_ALL_HEADS, "bf16", 4096) / f.kv_bytes(f.LLAMA_70B, "bf16", 4096),
            ),
        ),
    ),
    Claim(
        "70b-on-one-card",
        "A 70B model in bf16 cannot in fact serve on one 80 GB card",
        "against articles that give its cache on such a card",
        (
            Figure("weights over 80 GB", "x", 1.0, lambda: f.weights_bytes(f.LLAMA_70B) / (80 * GB), at_least=True),
            Figure("sessions that fit", "", 0, lambda: f.sessions_on_80_gb(f.LLAMA_70B, "bf16", 4096)),
        ),
        remark="The weights alone are larger than the card.",
    ),
    Claim(
        "paging-waste",
        "Contiguous allocation wastes 60-80 % of the cache, paging less than 4 %",
        "PagedAttention, arXiv 2309.06180",
        (
            Figure("contiguous, ShareGPT's mean lengths in rows of 2048", "", 0.7, f.contiguous_waste, within=1 / 7),
            Figure("32-token pages", "", 0.04, f.paged_waste, at_most=True),
        ),
    ),
    Claim(
        "paging-gather",
        "Gathering pages costs the attention kernel a little",
        "PagedAttention, arXiv 2309.06180 (20-26 % of the kernel, little of the whole)",
        bench=Bench(
            "bench/kernels.py",
            "build/bench/kernels.json",
            ("attention_bf16_b1_2048.share_of_stream", "attention_bf16_b8_2048.share_of_stream"),
            "paged attention over randomly placed pages, as a share of a plain read of memory",
        ),
        remark="There is no contiguous twin of the kernel to subtract: what is measured is the distance to a plain read.",
    ),
    Claim(
        "prefix-5x",
        "Prefix reuse gives up to 5 x",
        "RadixAttention (SGLang), arXiv 2312.07104",
        (
            Figure(
                "prompts with 80 % in common: tokens over tokens computed",
                "x",
                5,
                lambda: f.prefill_ratio(0.8),
                within=0.02,
            ),
        ),
        not_reproduced="the throughput, and the overhead on unshared traffic: `bench/paging.py` counts tokens saved, not seconds.",
    ),
    Claim(
        "fp8-halves",
        "fp8 halves the cache",
        "articles and vendors' guides",
        (
            Figure("head_dim 64", "x", 1.88, lambda: f.shrink(64, "fp8_e4m3"), within=0.005),
            Figure("head_dim 128", "x", 1.94, lambda: f.shrink(128, "fp8_e4m3"), within=0.005),
        ),
        remark="Not quite: a scale for each of K and V of a token and head is stored too. One for a whole tensor would halve it.",
    ),
    Claim(
        "kivi-memory",
        "2-bit KIVI needs 2.6 x less peak memory and allows 4 x the batch",
        "KIVI, arXiv 2402.02750 (Llama-2-7B)",
        (
            Figure("peak memory of a full 80 GB card, 4096 tokens", "x", 2.6, f.peak_memory_ratio, at_least=True),
            Figure("batch at 4096 tokens, 128 of them 16-bit", "x", 4, lambda: f.batch_ratio(4096, 128), at_least=True),
        ),
        remark="By bytes. Of 499 tokens with 128 in 16 bits only 2.3 x the sessions fit: the residue eats it.",
    ),
    Claim(
        "kivi-throughput",
        "... and 2.3-3.5 x the throughput",
        "KIVI, arXiv 2402.02750",
        not_reproduced="it follows from batches that fill a GPU, with attention fused to 2-bit pages; this engine runs on CPUs.",
    ),
    Claim(
        "needle-91-13-89",
        "Needle recall of fp8 attention falls from 91 to 13 and comes back to 89 with better accumulation",
        "vLLM's KV cache post of 2026-04-22 (Hopper, 128k tokens)",
        not_reproduced=(
            "it is the fp8 tensor cores of Hopper, which sum in fewer than 32 bits, over 100k tokens. kvroll's kernels widen"
            " each element and sum in fp32, and the small real model here knows 8192 positions."
        ),
    ),
    Claim(
        "session-3.8-gb",
        "A 100k-token session is about 3.8 GB in fp8",
        "an article that does not name the model",
        (
            Figure(
                "DeepSeek-V3 (MLA), 100,000 tokens",
                "GiB",
                3.8,
                lambda: f.kv_bytes(f.V3, "fp8_e4m3", 100_000) / GIB,
                within=0.03,
            ),
        ),
        remark="True of DeepSeek-V3. Llama-3.1-8B takes 6.8 GB, Llama-3.1-70B 16.9 GB.",
    ),
    Claim(
        "fp4-peak",
        "FP4 multiplies at 2 x the rate of FP8 and 4 x that of 16 bits",
        "Blackwell's data sheets",
        not_reproduced=(
            "it is a peak of FP4 tensor cores; none of the devices that kvroll runs on has them, and mxfp4 weights are"
            " widened before they are multiplied."
        ),
    ),
    Claim(
        "compressed-3.7m",
        "A compressed layout raises the same memory from 1.2M to 3.7M tokens",
        "articles on compressed attention, 3.1 x",
        (
            Figure(
                "DeepSeek-V3.2 over V4-Pro, fp8, sessions of 1M tokens",
                "x",
                3.1,
                lambda: f.kv_bytes(f.V32, "fp8_e4m3", 2**20) / f.kv_bytes(f.V4_PRO, "fp8_e4m3", 2**20),
                at_least=True,
            ),
        ),
        not_reproduced="the two token counts: they depend on a device, a model and a baseline that are not named.",
    ),
    Claim(
        "weight-bytes-speed",
        "Decoding speeds up by as much as the weights shrink",
        "articles; gpt-fast measures 1.48 x for int8 and 1.88 x for int4 g32 (A100, Llama-2-7B)",
        (
            Figure(
                "int8: bytes of a step over",
                "x",
                1.48,
                lambda: f.step_ratio_by_bytes("int8"),
                at_least=True,
            ),
            Figure(
                "int4: bytes of a step over",
                "x",
                1.88,
                lambda: f.step_ratio_by_bytes("int4"),
                at_least=True,
            ),
        ),
        bench=Bench(
            "bench/kernels.py",
            "build/bench/kernels.json",
            ("linears_bf16_m1.ms", "linears_int8_m1.ms", "linears_fp8_e4m3_m1.ms", "linears_int4_m1.ms"),
            "one pass over every weight of a model at one row, by dtype",
        ),
        remark="Bytes are the bound, not the speed: that is why a worker's own rates go into every prediction.",
    ),
)
