"""The series that a wall verdict is made of, beside vLLM's gauges: what steps did, who waits for room, how fast the device is.

Names as `kvroll_core.wall` reads them.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvroll.v1 import worker_pb2 as wpb
from kvroll_core.compat import Descriptor
from kvroll_core.precision.codec import labels
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_worker.request import EngineStats


class WallSeries(Collector):
    """Takes stats as they come; shows a measured figure once it is measured."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._stats: EngineStats | None = None
        self._busy_seconds = self._busy_cpu_seconds = self._waiting_seconds = 0.0
        self._taken_at: float | None = None
        self._precision: dict[str, str] = {}
        self._device: dict[str, float] = {}
        self._formats: dict[tuple[str, str], float] = {}
        self._active: dict[str, float] = {}

    def describe(self) -> list[Metric]:
        """Nothing: the registry need not collect to register."""
        return []

    def runs(self, descriptor: Descriptor) -> None:
        """The precision of the engine: what decides how many bytes its steps read."""
        self.runs_at(labels(descriptor))

    def runs_at(self, precision: dict[str, str]) -> None:
        """The same by its words."""
        self._precision = precision

    def take(self, stats: EngineStats, busy_seconds: float, busy_cpu_seconds: float, now: float) -> None:
        """The newest stats, at monotonic seconds `now`; who waits for room now is taken to have waited since the last ones."""
        if self._taken_at is not None and stats.waiting_for_room:
            self._waiting_seconds += now - self._taken_at
        self._stats, self._taken_at = stats, now
        self._busy_seconds, self._busy_cpu_seconds = busy_seconds, busy_cpu_seconds

    def measured(self, kind: str, name: str, per_second: float) -> None:
        """A figure of the calibration (`engine.calibration.Piece`)."""
        if kind == "device":
            self._device[name] = per_second
        else:
            self._formats[kind, name] = per_second

    def active(self, memory: float, tensor: float) -> None:
        """What the device's own counters say: shares from 0 to 1."""
        self._active = {"memory": memory, "tensor": tensor}

    def inactive(self) -> None:
        """The device's counters cannot be read any more."""
        self._active = {}

    def to_wire(self) -> wpb.WallFigures | None:
        """The same figures for a report; None before the first stats."""
        stats = self._stats
        if stats is None or self._taken_at is None:
            return None
        return wpb.WallFigures(
            at_seconds=self._taken_at,
            running=stats.running,
            waiting=stats.waiting,
            kv_used=1 - stats.pages_free / max(1, stats.pages_total),
            preemptions=stats.preemptions_total,
            prompt_tokens=stats.prompt_tokens_total,
            generated_tokens=stats.generated_tokens_total,
            prefix_queries_tokens=stats.prefix_queries_total,
            prefix_hits_tokens=stats.prefix_hits_total,
            steps=stats.steps_total,
            step_seconds=self._busy_seconds,
            step_cpu_seconds=self._busy_cpu_seconds,
            step_kernel_seconds=stats.kernel_seconds_total,
            waiting_for_room_seconds=self._waiting_seconds,
            read_bytes=stats.read_bytes_total,
            flops=stats.flops_total,
            device_bytes_per_second=self._device.get("bytes", 0.0),
            device_flops_per_second=self._device.get("flops", 0.0),
            formats=[
                wpb.FormatRate(kind=kind, dtype=dtype, bytes_per_second=rate)
                for (kind, dtype), rate in sorted(self._formats.items())
            ],
            memory_active=self._active.get("memory"),
            tensor_active=self._active.get("tensor"),
        )

    def collect(self) -> Iterator[Metric]:
        yield from self._counters(self._stats)
        for name, per_second in list(self._device.items()):
            text = f"{name} a second, measured on this device with the worker's kernels."
            yield GaugeMetricFamily(f"kvroll_device_{name}_per_second", text.capitalize(), value=per_second)
        for name, share in list(self._active.items()):
            text = f"Share of the last seconds in which the device's {name} pipes were active, by its own counter."
            yield GaugeMetricFamily(f"kvroll_device_{name}_active", text, value=share)
        if self._formats:
            text = "Stored bytes a second of each dtype's kernels, measured on this device."
            family = GaugeMetricFamily("kvroll_format_bytes_per_second", text, labels=["kind", "dtype"])
            for (kind, dtype), per_second in sorted(self._formats.items()):
                family.add_metric([kind, dtype], per_second)
            yield family
        if self._precision:
            info = GaugeMetricFamily("kvroll_engine_info", "The engine's precision.", labels=list(self._precision))
            info.add_metric(list(self._precision.values()), 1)
            yield info
            yield self._cache()

    def _cache(self) -> Metric:
        """The cache's sizes, as vLLM tells them: by labels."""
        stats = self._stats
        told = {
            "block_size": str(PAGE_TOKENS),
            "num_gpu_blocks": str(stats.pages_total if stats else 0),
            "cache_dtype": self._precision.get("kv_cache", ""),
            "enable_prefix_caching": str(bool(stats and stats.prefix_cache_on)),
            "model_name": self._model_name,
        }
        family = GaugeMetricFamily("vllm:cache_config_info", "The KV cache, by its labels.", labels=list(told))
        family.add_metric(list(told.values()), 1)
        return family

    def _counters(self, stats: EngineStats | None) -> Iterator[Metric]:
        steps, kernels = (stats.steps_total, stats.kernel_seconds_total) if stats else (0, 0.0)
        read_bytes, flops = (stats.read_bytes_total, stats.flops_total) if stats else (0.0, 0.0)
        for name, text, value in (
            ("kvroll_steps", "Engine steps.", steps),
            ("kvroll_step_seconds", "Time inside engine steps.", self._busy_seconds),
            ("kvroll_step_cpu_seconds", "Time on a CPU of the engine's thread inside steps.", self._busy_cpu_seconds),
            ("kvroll_step_kernel_seconds", "Time of steps inside kernels; 0: not counted.", kernels),
            ("kvroll_waiting_for_room_seconds", "Time in which a session waited for KV pages.", self._waiting_seconds),
        ):
            yield CounterMetricFamily(name, text, value=value)
        for name, text, value in (
            ("vllm:estimated_read_bytes_per_gpu", "Bytes that steps read, by the model.", read_bytes),
            ("vllm:estimated_flops_per_gpu", "Floating-point operations of steps, by the model.", flops),
        ):
            family = CounterMetricFamily(name, text, labels=["model_name"])
            family.add_metric([self._model_name], value)
            yield family
