# ruff: noqa: E501 (a page a line)
"""The cases: scenes on an H100 (3.0 TB/s and 600 TFLOPS measured), a consumer GPU and a CPU, over four engines and our own.

A decode step of a batch takes at least its bytes over the bandwidth, a prompt its operations over the peak; a scene whose step takes about
that is at that wall, one whose step takes several times both is the host's.
"""

from collections.abc import Callable
from dataclasses import replace

from kvroll_bench.wall_pages.case import H100, LLAMA_8B, REFUSED, Case
from kvroll_bench.wall_pages.scene import Scene
from kvroll_bench.wall_pages.writers import dcgm, kvroll, labelled, llamacpp, sglang, together, triton, trtllm, vllm
from kvroll_core.budget import ModelShape
from kvroll_core.wall import Machine, Told

LLAMA_70B = ModelShape(80, 8192, 64, 8, 128, 28672, 128256, False, 131072)
CONSUMER = Machine(bytes_per_second=0.95e12, flops_per_second=80e12)

# 66 GB a step in 30 ms: 0.74 of the bandwidth, most of it KV.
LONG = Scene(0.030, 32, 12_000, 1500, kv_used=0.85, pool_tokens=452_000)
# 16.4 GB a step in 7.5 ms: 0.73, nearly all weights.
SHORT = Scene(0.0075, 4, 500, 300, kv_used=0.0046)
# Every page taken and 20 wait; 71 GB a step in 60 ms: 0.4.
FULL = Scene(0.060, 60, 7000, 8000, waiting=20, kv_used=0.972, preemptions_per_second=0.2)
# The same at 35 ms: 0.68.
FULL_AND_READING = FULL.but(step_seconds=0.035)
# 256 run, the engine's limit, 120 wait, and pages are free.
QUEUE = Scene(0.020, 256, 300, 2000, waiting=120, kv_used=0.178)
# 30,000 prompt tokens a second: 0.72 of the peak.
PREFILL = Scene(0.060, 8, 2000, 30_000, kv_used=0.04, prefix_hit_share=0.1)
# 17 GB in 40 ms: neither limit.
SLOW = Scene(0.040, 16, 500, 400, kv_used=0.0185)
RARE = SHORT.but(ran=0.2)
STILL = SHORT.but(ran=0.0)
# 70B over four devices: 162 GB a step in 18 ms is 0.75 of each.
WIDE = Scene(
    0.018, 16, 4000, 500, kv_used=0.2, weights_bytes=141e9, kv_token_bytes=327_680, token_flops=141e9, pool_tokens=320_000,
    devices=4,
)  # fmt: skip
# Two engines at 0.377 each.
HALF = SHORT.but(step_seconds=0.0145)
# A 4-bit GGUF of 5.3 GB on a card of 0.95 TB/s.
GGUF = Scene(0.0075, 1, 2000, 100, kv_used=0.06, weights_bytes=5.3e9, pool_tokens=32_768)
# SmolLM2 in fp32 on a CPU: 0.36 GB in 40 ms of 12 GB/s.
CPU = Scene(
    0.040, 4, 1000, 5, kv_used=0.3, weights_bytes=0.27e9, kv_token_bytes=23_040, token_flops=0.27e9, pool_tokens=13_000
)

MODEL = Told(shape=LLAMA_8B, machine=H100)
NOTHING = Told()


def _at(scene: Scene, writer: Callable[..., str], **how: object) -> Callable[[int], str]:
    return lambda look: writer(scene.at(look), **how)


def _both(*pages: Callable[[int], str]) -> Callable[[int], str]:
    return lambda look: together(*(page(look) for page in pages))


def _engine(n: int) -> dict[str, str]:
    return {"labels": f'engine="{n}",model_name="llama-3.1-8b"', "engine": str(n)}


def _rank(n: int) -> str:
    return f'pp_rank="0",tp_rank="{n}"'


def _of_pod(page: Callable[[int], str], pod: str) -> Callable[[int], str]:
    return lambda look: labelled(page(look), pod=pod, job="vllm")


def _router(_: int) -> str:
    return (
        '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{server="http://10.0.0.1:8000"} 12.0\n'
        '# TYPE vllm:current_qps gauge\nvllm:current_qps{server="http://10.0.0.1:8000"} 3.1\n'
        '# TYPE vllm:num_incoming_requests counter\nvllm:num_incoming_requests_total{model="m"} 99.0\n'
    )


def _gateway(_: int) -> str:
    return "# TYPE kvroll_gateway_sessions gauge\nkvroll_gateway_sessions 3.0\n# TYPE kvroll_gateway_workers gauge\nkvroll_gateway_workers 1.0\n"


_VLLM = [
    Case("vllm-bandwidth-kv", "vLLM", _at(LONG, vllm), ["Bandwidth"]),
    Case("vllm-bandwidth-weights", "vLLM", _at(SHORT, vllm), ["Bandwidth"]),
    Case("vllm-capacity", "vLLM", _at(FULL, vllm), ["Capacity"], MODEL),
    Case("vllm-both", "vLLM", _at(FULL_AND_READING, vllm), ["Both"], MODEL),
    Case("vllm-queue", "vLLM", _at(QUEUE, vllm), ["Host"], queues=True),
    Case("vllm-prefill", "vLLM", _at(PREFILL, vllm), ["Compute"]),
    Case("vllm-host", "vLLM", _at(SLOW, vllm), ["Host"]),
    Case("vllm-idle", "vLLM", _at(RARE, vllm), ["Idle"]),
    Case("vllm-still", "vLLM", _at(STILL, vllm), ["Idle"], NOTHING),
    Case("vllm-nothing-told", "vLLM", _at(LONG, vllm, mfu=False), ["Unknown"], NOTHING, missing="bandwidth_used"),
    Case("vllm-no-device", "vLLM", _at(LONG, vllm), ["Unknown"], NOTHING, missing="bandwidth_used"),
    Case("vllm-by-model", "vLLM", _at(LONG, vllm, mfu=False), ["Bandwidth"], MODEL),
    Case("vllm-two-of-one-server", "vLLM", _both(*(_at(HALF, vllm, **_engine(n)) for n in (0, 1))), ["Host", "Host"]),
    Case("vllm-full-beside-still", "vLLM", _both(_at(FULL, vllm, **_engine(0)), _at(STILL, vllm, **_engine(1))), ["Capacity", "Idle"]),
    Case("vllm-tensor-parallel-by-model", "vLLM", _at(WIDE, vllm, mfu=False), ["Bandwidth"], Told(shape=LLAMA_70B, machine=H100, devices=4)),
    Case("vllm-0.8", "vLLM", _at(FULL, vllm, mfu=False, old=True), ["Capacity"], MODEL),
    Case("vllm-fp8-already", "vLLM", _at(FULL.but(kv_token_bytes=65536), vllm, cache_dtype="fp8"), ["Capacity"], MODEL),
    Case("vllm-router", "router", _router, [REFUSED]),
    Case("kvroll-gateway", "router", _gateway, [REFUSED]),
    Case(
        "vllm-counters-of-the-device", "vLLM",
        lambda n: together(vllm(SLOW.at(n), mfu=False), dcgm(SLOW.at(n), memory=0.72, tensor=0.06)), ["Bandwidth"], NOTHING,
    ),
]  # fmt: skip
_SGLANG = [
    Case("sglang-bandwidth", "SGLang", _at(LONG, sglang), ["Bandwidth"]),
    Case("sglang-four-ranks", "SGLang", _both(*(_at(WIDE, sglang, rank=_rank(n)) for n in range(4))), ["Bandwidth"]),
    Case("sglang-capacity", "SGLang", _at(FULL, sglang), ["Capacity"], MODEL),
    Case("sglang-both", "SGLang", _at(FULL_AND_READING, sglang), ["Both"], MODEL),
    Case("sglang-queue-by-priority", "SGLang", _at(QUEUE, sglang, priorities=True), ["Host"], queues=True),
    Case("sglang-prefill", "SGLang", _at(PREFILL, sglang), ["Compute"]),
    Case("sglang-host", "SGLang", _at(SLOW, sglang), ["Host"]),
    Case("sglang-idle", "SGLang", _at(RARE, sglang), ["Idle"]),
    Case("sglang-nothing-told", "SGLang", _at(LONG, sglang, mfu=False), ["Unknown"], missing="bandwidth_used"),
]
_TRTLLM = [
    Case("trtllm-bandwidth", "TensorRT-LLM", _at(LONG, trtllm), ["Bandwidth"], MODEL),
    Case("trtllm-capacity", "TensorRT-LLM", _at(FULL, trtllm), ["Capacity"], MODEL),
    Case("trtllm-queue", "TensorRT-LLM", _at(QUEUE, trtllm), ["Host"], MODEL, queues=True),
    Case("trtllm-prefill", "TensorRT-LLM", _at(PREFILL, trtllm), ["Compute"], MODEL),
    Case("trtllm-host", "TensorRT-LLM", _at(SLOW, trtllm), ["Host"], MODEL),
    Case("trtllm-idle", "TensorRT-LLM", _at(RARE, trtllm), ["Idle"]),
    Case("trtllm-nothing-told", "TensorRT-LLM", _at(LONG, trtllm), ["Unknown"], missing="bandwidth_used"),
    Case("triton-capacity", "TensorRT-LLM", _at(FULL, triton), ["Capacity"], MODEL),
    Case("triton-no-tokens", "TensorRT-LLM", _at(LONG, triton), ["Unknown"], MODEL, missing="bandwidth_used"),
]
_OWN_WEIGHTS = Told(shape=LLAMA_8B, weights="Q4_K_M", machine=CONSUMER)
_WHOLE = replace(_OWN_WEIGHTS, kv_tokens=32_768, kv_used=0.3)
_LLAMACPP = [
    Case("llamacpp-bandwidth", "llama.cpp", _at(GGUF, llamacpp), ["Bandwidth"], _OWN_WEIGHTS),
    Case("llamacpp-weights-not-told", "llama.cpp", _at(GGUF, llamacpp), ["Unknown"], Told(shape=LLAMA_8B, machine=CONSUMER), missing="bandwidth_used"),
    Case("llamacpp-deferred", "llama.cpp", _at(GGUF.but(step_seconds=0.02, waiting=40), llamacpp), ["Unknown"], _OWN_WEIGHTS, missing="waiting_for_room"),
    Case("llamacpp-deferred-and-full", "llama.cpp", _at(GGUF.but(step_seconds=0.02, waiting=40), llamacpp), ["Capacity"], replace(_WHOLE, kv_used=0.97)),
    Case("llamacpp-deferred-and-free", "llama.cpp", _at(GGUF.but(step_seconds=0.03, waiting=40), llamacpp), ["Host"], _WHOLE, queues=True),
    Case("llamacpp-prefill", "llama.cpp", _at(GGUF.but(step_seconds=0.05, prompt_tokens_per_second=3000), llamacpp), ["Compute"], _OWN_WEIGHTS),
    Case("llamacpp-host", "llama.cpp", _at(GGUF.but(step_seconds=0.05), llamacpp), ["Host"], _WHOLE),
    Case("llamacpp-idle", "llama.cpp", _at(GGUF.but(ran=0.2), llamacpp), ["Idle"], _OWN_WEIGHTS),
    Case("llamacpp-2024", "llama.cpp", _at(GGUF.but(step_seconds=0.02, waiting=40, kv_used=0.98), llamacpp, old=True), ["Capacity"], _OWN_WEIGHTS),
]  # fmt: skip
_OURS = [
    Case("kvroll-bandwidth", "kvroll", _at(CPU, kvroll), ["Bandwidth"], NOTHING),
    Case(
        "kvroll-capacity",
        "kvroll",
        _at(CPU.but(step_seconds=0.1, waiting=3, kv_used=0.97), kvroll),
        ["Capacity"],
        NOTHING,
    ),
    Case("kvroll-host", "kvroll", _at(CPU.but(step_seconds=0.2), kvroll), ["Host"], NOTHING),
]
_HELD_BACK = [
    Case("vllm-three-pods-federated", "vLLM", _both(*(_of_pod(_at(s, vllm), f"p{n}") for n, s in enumerate((LONG, QUEUE, RARE)))), ["Bandwidth", "Host", "Idle"]),
    Case("vllm-eight-of-one-server", "vLLM", _both(*(_at(HALF, vllm, **_engine(n)) for n in range(8))), ["Host"] * 8),
    Case("vllm-few-long-sessions", "vLLM", _at(Scene(0.02, 2, 180_000, 900, waiting=3, kv_used=0.8, pool_tokens=450_000), vllm), ["Both"], MODEL),
    Case("vllm-preempts-with-free-pages", "vLLM", _at(SLOW.but(preemptions_per_second=0.5, kv_used=0.5), vllm), ["Host"]),
    Case("vllm-half-the-time", "vLLM", _at(SHORT.but(ran=0.6, step_seconds=0.009), vllm), ["Unknown"], missing="busy"),
    Case("sglang-two-data-parallel", "SGLang", _both(*(_at(s, sglang, extra=f',dp_rank="{n}"') for n, s in enumerate((FULL, SLOW)))), ["Capacity", "Host"]),
    Case("sglang-still", "SGLang", _at(STILL, sglang, mfu=False), ["Idle"], NOTHING),
    Case("sglang-by-model", "SGLang", _at(SHORT, sglang, mfu=False), ["Bandwidth"], MODEL),
    Case("trtllm-both", "TensorRT-LLM", _at(FULL_AND_READING, trtllm), ["Both"], MODEL),
    Case("trtllm-still", "TensorRT-LLM", _at(STILL, trtllm), ["Idle"], NOTHING),
    Case("triton-counters-of-the-device", "TensorRT-LLM", lambda n: together(triton(LONG.at(n)), dcgm(LONG.at(n), memory=0.7, tensor=0.05)), ["Bandwidth"], NOTHING),
    Case("triton-prefill-by-counters", "TensorRT-LLM", lambda n: together(triton(PREFILL.at(n)), dcgm(PREFILL.at(n), memory=0.25, tensor=0.61)), ["Compute"], NOTHING),
    Case("llamacpp-eight-slots", "llama.cpp", _at(GGUF.but(sessions=8, step_seconds=0.009), llamacpp), ["Bandwidth"], _OWN_WEIGHTS),
    Case("llamacpp-still", "llama.cpp", _at(GGUF.but(ran=0.0), llamacpp), ["Idle"], NOTHING),
    Case("kvroll-idle", "kvroll", _at(CPU.but(ran=0.3), kvroll), ["Idle"], NOTHING),
    Case("two-engines-of-two-kinds", "vLLM", _both(_of_pod(_at(LONG, vllm), "a"), _of_pod(_at(QUEUE, sglang), "b")), ["Bandwidth", "Host"], queues=True),
]  # fmt: skip

CASES = (*_VLLM, *_SGLANG, *_TRTLLM, *_LLAMACPP, *_OURS, *(replace(case, held_back=True) for case in _HELD_BACK))
