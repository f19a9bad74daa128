"""Reads the counters of a window from an engine's Prometheus series: vLLM's names, which our worker shares, and ours
for the rest.

Names by vLLM's `v1/metrics/loggers.py` and `v1/metrics/perf.py`; a counter ends in `_total` on the wire.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.wall.counters import Counters, Machine
from kvroll_core.wall.step import Rates
from kvroll_core.wall.verdict import pages_full_at

Labels = tuple[tuple[str, str], ...]

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"
KV_USED = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
PREEMPTIONS = "vllm:num_preemptions_total"
REFUSALS = ("vllm:admission_rejections_total", "vllm:admission_rejections")
PROMPT = "vllm:prompt_tokens_total"
GENERATED = "vllm:generation_tokens_total"
PREFIX_QUERIES, PREFIX_HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
READ_BYTES = "vllm:estimated_read_bytes_per_gpu_total"
FLOPS = "vllm:estimated_flops_per_gpu_total"
STEPS = ("kvroll_steps_total", "vllm:iteration_tokens_total_count")
BUSY_SECONDS, STEP_CPU_SECONDS = "kvroll_step_seconds_total", "kvroll_step_cpu_seconds_total"
STEP_KERNEL_SECONDS = "kvroll_step_kernel_seconds_total"
WAITING_FOR_ROOM_SECONDS = "kvroll_waiting_for_room_seconds_total"
INTER_TOKEN = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
PAGES = "kvroll_kv_pages"
CACHE_INFO = "vllm:cache_config_info"
MODEL_INFO = "kvroll_engine_info"
DEVICE_BYTES_PER_SECOND, DEVICE_FLOPS_PER_SECOND = "kvroll_device_bytes_per_second", "kvroll_device_flops_per_second"
FORMAT_BYTES_PER_SECOND = "kvroll_format_bytes_per_second"
"""Labels `kind` (weights, kv) and `dtype`."""
MEMORY_ACTIVE = ("kvroll_device_memory_active", "DCGM_FI_PROF_DRAM_ACTIVE")
TENSOR_ACTIVE = ("kvroll_device_tensor_active", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
"""The device's own counters, shares from 0 to 1: a worker's reading of NVML, or the DCGM exporter's series beside it."""


class SeriesError(ValueError):
    """The series do not tell what is needed; the message names it."""


@dataclass(frozen=True)
class Sample:
    """One scrape: when (seconds of a monotonic clock), and every series by name and labels."""

    at: float
    series: Mapping[str, Mapping[Labels, float]] = field(default_factory=dict)

    def total(self, *names: str) -> float | None:
        """The sum over all labels of the first of these names that is there."""
        found = next((self.series[n] for n in names if n in self.series), None)
        return None if found is None else sum(found.values())

    def highest(self, *names: str) -> float | None:
        """The highest over all labels of the first of these names that is there."""
        found = next((self.series[n] for n in names if n in self.series), None)
        return None if not found else max(found.values())

    def mean(self, *names: str) -> float | None:
        """The mean over all labels of the first of these names that is there: a worker's devices share its work."""
        found = next((self.series[n] for n in names if self.series.get(n)), None)
        return None if found is None else sum(found.values()) / len(found)

    def beside(self, series: Mapping[str, Mapping[Labels, float]]) -> "Sample":
        """A copy with series that somebody else tells of this engine's devices."""
        return Sample(self.at, {**self.series, **series})

    def where(self, name: str, label: str, value: str) -> float | None:
        """The sum over the series of that name with that label."""
        if name not in self.series:
            return None
        return sum(number for labels, number in self.series[name].items() if (label, value) in labels)

    def info(self, name: str) -> dict[str, str]:
        """The labels of an info series, empty where there is none."""
        return dict(next(iter(self.series.get(name, {})), ()))

    def pool_tokens(self) -> float | None:
        """Tokens that the KV pool holds: vLLM's blocks x block size, or our pages."""
        told = self.info(CACHE_INFO)
        if told.get("num_gpu_blocks", "").isdigit() and told.get("block_size", "").isdigit():
            return int(told["num_gpu_blocks"]) * int(told["block_size"])
        pages = self.total(PAGES)
        return None if pages is None else pages * PAGE_TOKENS

    def machine(self) -> Machine:
        """What the worker measured of its device at start; None where it does not tell."""
        return Machine(self.highest(DEVICE_BYTES_PER_SECOND), self.highest(DEVICE_FLOPS_PER_SECOND))

    def rates(self) -> Rates:
        """What the worker measured of each dtype's kernels at start."""
        kinds: dict[str, dict[str, float]] = {"weights": {}, "kv": {}}
        for labels, number in self.series.get(FORMAT_BYTES_PER_SECOND, {}).items():
            told = dict(labels)
            if told.get("kind") in kinds:
                kinds[told["kind"]][told.get("dtype", "")] = number
        return Rates(weights=kinds["weights"], kv=kinds["kv"])


def counters_between(samples: Sequence[Sample]) -> Counters:
    """The counters of a window from two scrapes or more: totals from the first to the last, gauges over all of them.

    Raises:
        SeriesError: fewer than two scrapes, no engine's series, or a counter that went back (the worker restarted).
    """
    if len(samples) < 2:
        raise SeriesError(f"expected two scrapes or more, found {len(samples)}")
    first, last = samples[0], samples[-1]
    if last.total(RUNNING) is None:
        raise SeriesError(f"expected {RUNNING}, as vLLM and the workers of kvroll have it, found no such series")
    seconds = last.at - first.at
    return Counters(
        seconds=seconds,
        running=_mean([s.total(RUNNING) or 0.0 for s in samples]),
        waiting=_mean([s.total(WAITING) or 0.0 for s in samples]),
        waiting_for_room=_waiting_for_room(samples, seconds),
        kv_used=_high([s.highest(*KV_USED) for s in samples]),
        preemptions=_grown(first, last, PREEMPTIONS) or 0.0,
        refusals=_grown(first, last, *REFUSALS) or 0.0,
        prompt_tokens=_grown(first, last, PROMPT) or 0.0,
        generated_tokens=_grown(first, last, GENERATED) or 0.0,
        steps=_grown(first, last, *STEPS),
        busy_seconds=_grown(first, last, BUSY_SECONDS),
        step_cpu_seconds=_grown(first, last, STEP_CPU_SECONDS),
        # Zero where the kernels do not count their time.
        step_kernel_seconds=_grown(first, last, STEP_KERNEL_SECONDS) or None,
        # An engine without the analytic counters may still show the series, at zero.
        read_bytes=_grown(first, last, READ_BYTES) or None,
        flops=_grown(first, last, FLOPS) or None,
        memory_active=_mean_of_told([s.mean(*MEMORY_ACTIVE) for s in samples]),
        tensor_active=_mean_of_told([s.mean(*TENSOR_ACTIVE) for s in samples]),
        inter_token_p95_seconds=_quantile(first, last, 0.95),
        inter_token_mean_seconds=_histogram_mean(first, last),
        prefix_query_tokens=_grown(first, last, PREFIX_QUERIES),
        prefix_hit_tokens=_grown(first, last, PREFIX_HITS),
    )


def _waiting_for_room(samples: Sequence[Sample], seconds: float) -> float | None:
    counted = _grown(samples[0], samples[-1], WAITING_FOR_ROOM_SECONDS)
    if counted is not None:
        return min(1.0, counted / seconds)
    waits = [_waits_for_room(s) for s in samples]
    told = [wait for wait in waits if wait is not None]
    return _mean([float(wait) for wait in told]) if len(told) == len(waits) else None


def _waits_for_room(sample: Sample) -> bool | None:
    """Whether sessions wait for pages, of an engine that only tells who waits and how full the pages are; None: it does not.

    vLLM's reason "capacity" means all that were not tried yet, those that wait for a slot or for tokens of a step too
    (vllm-project/vllm#38435); "deferred" ones wait for something else. So the pages must be too full for one more.
    """
    by_reason = sample.where(WAITING_BY_REASON, "reason", "capacity")
    waiting = sample.total(WAITING) or 0.0 if by_reason is None else by_reason
    used = sample.highest(*KV_USED)
    if not waiting:
        return False
    return None if used is None else used >= pages_full_at(sample.total(RUNNING) or 0.0)


def _grown(first: Sample, last: Sample, *names: str) -> float | None:
    before, after = first.total(*names), last.total(*names)
    if after is None:
        return None
    if after < (before or 0.0):
        raise SeriesError(f"{names[0]} went back from {before:g} to {after:g}: the worker restarted; look again")
    return after - (before or 0.0)


def _quantile(first: Sample, last: Sample, share: float) -> float | None:
    name = next((f"{n}_bucket" for n in INTER_TOKEN if f"{n}_bucket" in last.series), "")
    counts: dict[float, float] = {}
    for sample, sign in ((first, -1.0), (last, 1.0)):
        for labels, number in sample.series.get(name, {}).items():
            edge = float(dict(labels)["le"])
            counts[edge] = counts.get(edge, 0.0) + sign * number
    edges = sorted(counts)
    if not edges or counts[edges[-1]] <= 0:
        return None
    wanted = share * counts[edges[-1]]
    low, below = 0.0, 0.0
    for edge in edges:
        if counts[edge] >= wanted:
            # Linear inside a bucket, as PromQL's histogram_quantile; the last one has no upper edge.
            inside = counts[edge] - below
            return low if edge == float("inf") else low + (edge - low) * (wanted - below) / inside
        low, below = edge, counts[edge]
    return low


def _histogram_mean(first: Sample, last: Sample) -> float | None:
    seconds = _grown(first, last, *(f"{n}_sum" for n in INTER_TOKEN))
    count = _grown(first, last, *(f"{n}_count" for n in INTER_TOKEN))
    return seconds / count if seconds is not None and count else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_of_told(values: Sequence[float | None]) -> float | None:
    told = [v for v in values if v is not None]
    return _mean(told) if told else None


def _high(values: Sequence[float | None]) -> float | None:
    told = sorted(v for v in values if v is not None)
    return told[min(len(told) - 1, int(0.95 * len(told)))] if told else None
