"""The series that dashboards know from vLLM: all of them from the start, and right for sessions that begin, end, move in and fail."""

import time

import pytest
from prometheus_client import generate_latest

from kvroll_worker.own.effects import WAYS
from kvroll_worker.own.record import record_of
from kvroll_worker.request import STEP_TOKENS, TokenEvent
from kvroll_worker.serve.metrics import Metrics
from tests.worker.tiny_model import MakeEngine, state_of

# What the dashboards of vLLM's repository and the gateways that read a vLLM ask for.
HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_max_num_generation_tokens",
    "iteration_tokens_total",
)
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
COUNTERS = ("num_preemptions", "prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits")


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"model_name": "m", **labels})


def test_every_series_is_there_before_the_first_session() -> None:
    metrics = Metrics("m")
    for name in HISTOGRAMS:
        for part in ("count", "sum"):
            assert read(metrics, f"vllm:{name}_{part}") == 0, name
        assert read(metrics, f"vllm:{name}_bucket", le="+Inf") == 0, name
    for name in (*GAUGES, *(f"{c}_total" for c in COUNTERS)):
        assert read(metrics, f"vllm:{name}") == 0, name
    for reason in ("stop", "length", "abort", "error"):
        assert read(metrics, "vllm:request_success_total", finished_reason=reason) == 0
    for way in WAYS:
        assert metrics.registry.get_sample_value("kvroll_sessions_left_total", {"way": way}) == 0
    for direction in ("in", "out"):
        assert metrics.registry.get_sample_value("kvroll_moved_bytes_total", {"direction": direction}) == 0
    for way_on in ("Exact", "Convert"):
        assert metrics.registry.get_sample_value("kvroll_sessions_moved_total", {"way_on": way_on}) == 0
    metrics.wall.runs_at({"kv_cache": "int8", "weights": "bf16"})
    page = generate_latest(metrics.registry).decode()
    assert 'vllm:cache_config_info{block_size="32",cache_dtype="int8"' in page


def test_a_session_is_timed_from_submit_over_its_first_step_to_its_end() -> None:
    metrics = Metrics("m")
    record = record_of(state_of("s", [1, 2, 3], max_tokens=9), "Start", "bf16", "bf16", submitted_at=100.0)
    record.scheduled_at, record.first_token_at = 101.0, 103.0
    metrics.began(record, 103.0)
    record.num_outputs = 5
    metrics.finished(record, "stop", 107.0)
    times = {"time_to_first_token": 3, "request_queue_time": 1, "request_prefill_time": 2, "request_decode_time": 4}
    for name, seconds in (times | {"request_inference_time": 6, "e2e_request_latency": 7}).items():
        assert read(metrics, f"vllm:{name}_seconds_sum") == seconds, name
    sizes = {"request_prompt_tokens": 3, "request_generation_tokens": 5, "request_max_num_generation_tokens": 9}
    for name, tokens in sizes.items():
        assert read(metrics, f"vllm:{name}_sum") == tokens, name
    assert read(metrics, "vllm:request_time_per_output_token_seconds_sum") == 1
    assert read(metrics, "vllm:request_success_total", finished_reason="stop") == 1


def test_one_that_moved_in_counts_when_it_ends_and_its_times_do_not() -> None:
    metrics = Metrics("m")
    record = record_of(state_of("s", [1, 2], max_tokens=9), "Start", "bf16", "bf16")
    record.num_outputs = 4
    metrics.began(record, 5.0)
    metrics.finished(record, "length", 9.0)
    assert read(metrics, "vllm:request_success_total", finished_reason="length") == 1
    assert read(metrics, "vllm:request_generation_tokens_count") == 1
    for name in ("time_to_first_token", "e2e_request_latency", "request_decode_time"):
        assert read(metrics, f"vllm:{name}_seconds_count") == 0


@pytest.mark.parametrize(
    ("way", "reason"), [("cancelled", "abort"), ("failed", "error"), ("moved", ""), ("finished", "")]
)
def test_a_session_that_leaves_ends_its_request_or_goes_on_elsewhere(way: str, reason: str) -> None:
    metrics = Metrics("m")
    metrics.left(way)
    assert metrics.registry.get_sample_value("kvroll_sessions_left_total", {"way": way}) == 1
    for each in ("stop", "length", "abort", "error"):
        assert read(metrics, "vllm:request_success_total", finished_reason=each) == (each == reason)


def test_the_engine_tells_the_first_step_of_a_session_and_the_tokens_of_its_steps(make_engine: MakeEngine) -> None:
    engine = make_engine(max_sessions=1)
    before = time.monotonic()
    for name in "ab":
        engine.submit(state_of(name, [5] * 40, max_tokens=3))
    events = []
    while engine.has_work():
        events += [event for event in engine.step() if isinstance(event, TokenEvent)]
    first = {event.session_id: event.scheduled_at for event in reversed(events)}
    ends = {event.session_id: number for number, event in enumerate(events)}
    assert before <= (first["a"] or 0) < (first["b"] or 0), "b waited for the one place"
    assert ends["a"] < ends["b"]
    stats = engine.stats()
    assert sum(stats.step_sizes) == stats.steps_total
    assert stats.step_tokens_total == stats.prefill_tokens_total + 4  # the outputs but the last of each
    assert stats.step_sizes[STEP_TOKENS.index(1)] == 4
    metrics = Metrics("m")
    metrics.engine.stats = stats
    assert read(metrics, "vllm:iteration_tokens_total_count") == stats.steps_total
    assert read(metrics, "vllm:iteration_tokens_total_sum") == stats.step_tokens_total
    assert read(metrics, "vllm:iteration_tokens_total_bucket", le="1.0") == 4
