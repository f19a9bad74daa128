"""Prometheus series of a worker: vLLM's names where the meaning is the same, `kvroll_*` for the rest."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kvroll_core.words import VerdictKind
from kvroll_worker.own.effects import WAYS
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.request import STEP_TOKENS, EngineStats
from kvroll_worker.serve.request_series import SECONDS, RequestSeries
from kvroll_worker.serve.wall_series import WallSeries

NO_STATS = EngineStats(
    running=0, waiting=0, held=0, frozen=0, pages_total=0, pages_free=0, page_bytes=0, kv_bytes_per_token=0.0,
    prompt_tokens_total=0, generated_tokens_total=0, preemptions_total=0, steps_total=0,
)  # fmt: skip
"""Before the engine told any: a counter is there from the start, at zero."""


class Metrics:
    """All series of one worker in a registry of its own; `model_name` labels vLLM's series as vLLM does."""

    def __init__(self, model_name: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = RequestSeries(model_name, registry)
        self.inter_token_seconds = self._requests.inter_token_seconds
        self.sessions_left = Counter(
            "kvroll_sessions_left_total", "Sessions that left this worker, by way.", ["way"], registry=registry
        )
        self.sessions_moved = Counter(
            "kvroll_sessions_moved_total", "Sessions moved away.", ["way_on"], registry=registry
        )
        self.moves_failed = Counter(
            "kvroll_moves_failed_total", "Attempts to move a session that failed.", registry=registry
        )
        self.gateway_streams_ended = Counter(
            "kvroll_gateway_streams_ended_total",
            "Attach streams that ended, by the gateway's word or because nothing was heard of it.",
            registry=registry,
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
            buckets=SECONDS,
            registry=self.registry,
        )
        for way in WAYS:
            self.sessions_left.labels(way)
        for kind in (VerdictKind.EXACT, VerdictKind.CONVERT):
            self.sessions_moved.labels(kind.value)
        for direction in ("in", "out"):
            self.moved_bytes.labels(direction)
        self.engine = _EngineCollector(model_name)
        self.registry.register(self.engine)
        self.wall = WallSeries(model_name)
        self.registry.register(self.wall)

    def began(self, record: SessionRecord, now: float) -> None:
        """The first token of a session that began here."""
        self._requests.began(record, now)

    def finished(self, record: SessionRecord, reason: str, now: float) -> None:
        """The last token of a session."""
        self._requests.finished(record, reason, now)

    def left(self, way: str) -> None:
        """A session left the worker's books."""
        self.sessions_left.labels(way).inc()
        self._requests.left(way)


class _EngineCollector(Collector):
    """Series read from the engine's newest stats."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self.stats: EngineStats | None = None

    def collect(self) -> Iterator[Metric]:
        stats = self.stats or NO_STATS
        pinned = stats.pages_total - stats.pages_free
        used = pinned / max(1, stats.pages_total)
        yield self._gauge("vllm:num_requests_running", "Sessions in the batch.", stats.running)
        yield self._gauge("vllm:num_requests_waiting", "Sessions that wait for room.", stats.waiting)
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of KV pages that sessions hold, 1 is all.", used)
        yield self._gauge("kvroll_prefix_cache_on", "1 while prefixes are looked up and kept.", stats.prefix_cache_on)
        yield self._gauge(
            "kvroll_spilled_bytes", "KV of preempted sessions kept beside the pages.", stats.spilled_bytes
        )
        for name, text, value in _counters(stats):
            yield self._counter(name, text, value)
        pages = GaugeMetricFamily("kvroll_kv_pages", "KV pages by state.", labels=["state"])
        states = {
            "free": stats.pages_free - stats.pages_cached,
            "cached": stats.pages_cached,
            "pinned": pinned,
            "null": 1,
        }
        for state, number in states.items():
            pages.add_metric([state], number)
        yield pages
        yield _step_sizes(self._model_name, stats)

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family

    def _counter(self, name: str, text: str, value: float) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family


def _step_sizes(model_name: str, stats: EngineStats) -> HistogramMetricFamily:
    """Tokens a step, as vLLM's histogram of that name; its `_total` belongs to the name."""
    family = HistogramMetricFamily("vllm:iteration_tokens_total", "Tokens of an engine step.", labels=["model_name"])
    edges = [*(str(float(edge)) for edge in STEP_TOKENS), "+Inf"]
    counts = stats.step_sizes or (0,) * len(edges)
    family.add_metric([model_name], list(zip(edges, accumulate(counts), strict=True)), stats.step_tokens_total)
    return family


def _counters(stats: EngineStats) -> list[tuple[str, str, float]]:
    """Name without `_total`, help, value."""
    queries, hits = stats.prefix_queries_total, stats.prefix_hits_total
    return [
        ("vllm:prompt_tokens", "Prompt tokens of sessions that began to generate.", stats.prompt_tokens_total),
        ("vllm:generation_tokens", "Tokens generated.", stats.generated_tokens_total),
        ("vllm:num_preemptions", "Sessions preempted.", stats.preemptions_total),
        ("vllm:prefix_cache_queries", "Tokens looked up in the prefix cache.", queries),
        ("vllm:prefix_cache_hits", "Tokens found in the prefix cache.", hits),
        ("kvroll_prefix_cache_queries_tokens", "Tokens looked up in the prefix cache.", queries),
        ("kvroll_prefix_cache_hits_tokens", "Tokens found in the prefix cache.", hits),
        ("kvroll_prefix_cache_resumed_tokens", "Tokens found by preempted sessions.", stats.prefix_resumed_total),
        ("kvroll_prefix_cache_switches", "Times that Auto turned it off or on.", stats.prefix_switches_total),
        ("kvroll_prefill_tokens", "Tokens computed of prompts and replayed outputs.", stats.prefill_tokens_total),
        ("kvroll_kv_page_evictions", "Cached pages given to someone else.", stats.evictions_total),
        ("kvroll_window_pages_freed", "Pages given back behind all windows.", stats.window_pages_freed_total),
        ("kvroll_kv_allocation_failures", "Times that pages were asked for in vain.", stats.allocation_failures_total),
        ("kvroll_preemptions", "Sessions preempted.", stats.preemptions_total),
        ("kvroll_spills", "Preempted sessions whose KV was kept aside.", stats.spills_total),
    ]
