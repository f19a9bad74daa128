"""The figures of a worker's report that a wall is judged by, as the series of its metrics page."""

from kvroll.v1 import worker_pb2
from kvroll_core.precision.codec import labels
from kvroll_core.wall import Labels, Sample

_COUNTERS = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_used": "vllm:kv_cache_usage_perc",
    "preemptions": "vllm:num_preemptions_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generated_tokens": "vllm:generation_tokens_total",
    "prefix_queries_tokens": "vllm:prefix_cache_queries_total",
    "prefix_hits_tokens": "vllm:prefix_cache_hits_total",
    "steps": "kvroll_steps_total",
    "step_seconds": "kvroll_step_seconds_total",
    "step_cpu_seconds": "kvroll_step_cpu_seconds_total",
    "step_kernel_seconds": "kvroll_step_kernel_seconds_total",
    "waiting_for_room_seconds": "kvroll_waiting_for_room_seconds_total",
    "read_bytes": "vllm:estimated_read_bytes_per_gpu_total",
    "flops": "vllm:estimated_flops_per_gpu_total",
}
_MEASURED = {
    "device_bytes_per_second": "kvroll_device_bytes_per_second",
    "device_flops_per_second": "kvroll_device_flops_per_second",
}
_ACTIVE = {"memory_active": "kvroll_device_memory_active", "tensor_active": "kvroll_device_tensor_active"}


def wall_sample(report: worker_pb2.GetReportResponse) -> Sample | None:
    """The figures of a report as the series of a metrics page, which the verdict reads; None of a worker that has none."""
    if not report.HasField("wall"):
        return None
    figures = report.wall
    precision: Labels = tuple(sorted(labels(report.descriptor).items()))
    series: dict[str, dict[Labels, float]] = {n: {(): float(getattr(figures, f))} for f, n in _COUNTERS.items()}
    series |= {name: {(): getattr(figures, f)} for f, name in _MEASURED.items() if getattr(figures, f)}
    series |= {name: {(): getattr(figures, f)} for f, name in _ACTIVE.items() if figures.HasField(f)}  # type: ignore[arg-type]
    series["kvroll_kv_pages"] = {(): float(report.pages.total)}
    series["kvroll_engine_info"] = {precision: 1.0}
    series["kvroll_format_bytes_per_second"] = {
        (("dtype", rate.dtype), ("kind", rate.kind)): rate.bytes_per_second for rate in figures.formats
    }
    return Sample(figures.at_seconds, series)
