"""`/metrics` as scrapers ask for it: names are what docs/engine.md and vLLM's dashboards say, in whatever format is wanted."""

import gzip
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from kvroll_worker.serve.health import Health, HealthServer

ACCEPT = {
    "Prometheus 2": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Prometheus 3": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.2",
    "curl": "*/*",
}


@pytest.fixture
def server() -> Iterator[HealthServer]:
    registry = CollectorRegistry()
    Counter("vllm:prompt_tokens_total", "Tokens.", registry=registry).inc(3)
    Histogram("vllm:time_to_first_token_seconds", "Seconds.", registry=registry).observe(0.1)
    made = HealthServer("127.0.0.1", 0, Health(), registry)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("accept", ACCEPT.values(), ids=ACCEPT)
def test_names_keep_their_colon(server: HealthServer, accept: str) -> None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("GET", "/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    page = gzip.decompress(answer.read()).decode()
    connection.close()
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "vllm:prompt_tokens_total 3.0" in page
    assert "vllm:time_to_first_token_seconds_count 1.0" in page
