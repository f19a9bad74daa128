"""What a simulated worker counts for a wall verdict: always busy reading, pages by its sessions."""

from kvroll_core.wall import Labels, Sample

BYTES_PER_SECOND, FLOPS_PER_SECOND = 1e10, 1e11
PAGES, SESSION_PAGES = 700, 50


def figures(now: float, sessions: int, *, read_share: float = 0.8, waits: bool = False) -> Sample:
    """The series of a worker that has read `read_share` of what its device can, since time 0."""
    counters = {
        "vllm:num_requests_running": sessions,
        "vllm:num_requests_waiting": 3 * waits,
        "vllm:kv_cache_usage_perc": sessions * SESSION_PAGES / PAGES,
        "vllm:prompt_tokens_total": now,
        "vllm:generation_tokens_total": 20 * now,
        "kvroll_steps_total": 10 * now,
        "kvroll_step_seconds_total": now,
        "kvroll_step_cpu_seconds_total": now,
        "kvroll_waiting_for_room_seconds_total": now if waits else 0.0,
        "vllm:estimated_read_bytes_per_gpu_total": read_share * BYTES_PER_SECOND * now,
        "vllm:estimated_flops_per_gpu_total": 0.1 * FLOPS_PER_SECOND * now,
        "kvroll_device_bytes_per_second": BYTES_PER_SECOND,
        "kvroll_device_flops_per_second": FLOPS_PER_SECOND,
        "kvroll_kv_pages": PAGES,
    }
    rates = {"bf16": 9e9, "int8": 8e9}
    formats: dict[Labels, float] = {
        (("dtype", dtype), ("kind", kind)): rate for kind in ("kv", "weights") for dtype, rate in rates.items()
    }
    series: dict[str, dict[Labels, float]] = {n: {(): float(v)} for n, v in counters.items()}
    series["kvroll_engine_info"] = {(("kv_cache", "bf16"), ("weights", "bf16")): 1.0}
    return Sample(now, {**series, "kvroll_format_bytes_per_second": formats})
