"""Prometheus series of a worker: vLLM's names where the meaning is the same, `kvroll_*` for the rest."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kvroll_worker.engine.request import EngineStats

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """All series of one worker in a registry of its own; `model_name` labels vLLM's series as vLLM does."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        labels, registry = ["model_name"], self.registry
        self.first_token_seconds = Histogram(
            "vllm:time_to_first_token_seconds", "Submit to first token.", labels, buckets=_SECONDS, registry=registry
        ).labels(model_name)
        self.inter_token_seconds = Histogram(
            "vllm:inter_token_latency_seconds",
            "Between two tokens of a session.",
            labels,
            buckets=_SECONDS,
            registry=registry,
        ).labels(model_name)
        self.sessions_left = Counter(
            "kvroll_sessions_left_total", "Sessions that left this worker, by way.", ["way"], registry=registry
        )
        self.sessions_moved = Counter(
            "kvroll_sessions_moved_total", "Sessions moved away.", ["way_on"], registry=registry
        )
        self.moves_failed = Counter(
            "kvroll_moves_failed_total", "Attempts to move a session that failed.", registry=registry
        )
        self.moved_bytes = Counter(
            "kvroll_moved_bytes_total", "Page bytes on the wire.", ["direction"], registry=registry
        )
        self.checksum_failures = Counter(
            "kvroll_checksum_failures_total", "Chunks or pages that did not verify.", registry=registry
        )
        self.downtime_seconds = Histogram(
            "kvroll_move_downtime_seconds",
            "Freeze to COMMITTED of a moved session.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.engine = _EngineCollector(model_name)
        self.registry.register(self.engine)


class _EngineCollector(Collector):
    """Series read from the engine's newest stats."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self.stats: EngineStats | None = None

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        stats = self.stats
        if stats is None:
            return
        used = stats.pages_total - stats.pages_free
        gauges = {
            "vllm:num_requests_running": ("Sessions in the batch.", stats.running),
            "vllm:num_requests_waiting": ("Sessions that wait for room.", stats.waiting),
            "vllm:kv_cache_usage_perc": ("Used share of KV pages, 1 is all.", used / max(1, stats.pages_total)),
        }
        for name, (text, value) in gauges.items():
            yield self._gauge(name, text, value)
        yield self._counter("vllm:prompt_tokens", "Prompt tokens prefilled.", stats.prompt_tokens_total)
        yield self._counter("vllm:generation_tokens", "Tokens generated.", stats.generated_tokens_total)
        yield self._counter("vllm:num_preemptions", "Sessions preempted.", stats.preemptions_total)
        pages = GaugeMetricFamily("kvroll_kv_pages", "KV pages by state.", labels=["state"])
        pages.add_metric(["free"], stats.pages_free)
        pages.add_metric(["used"], used)
        yield pages

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family

    def _counter(self, name: str, text: str, value: float) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family
