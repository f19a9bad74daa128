"""Sources HTTP and Prometheus, each against a server of its own."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate import Gate, GateMetric
from kvroll_operator.gate.finding import GateSourceError, judge
from kvroll_operator.gate.opener import SourceOpener
from tests.operator.gate_subject import measure

BARS = [{"name": "accuracy", "min": 0.9}, {"name": "latency", "max": 2.0}]


@dataclass
class Service:
    """An HTTP server that answers as it is told and remembers what it was asked."""

    url: str = ""
    answer: Any = None
    status: int = 200
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        form = dict(await request.post()) if request.content_type.endswith("urlencoded") else await request.json()
        self.asked.append({"path": request.path, "body": form, "header": request.headers.get("X-Key")})
        answer = self.answer(len(self.asked)) if callable(self.answer) else self.answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return web.Response(text=text, status=self.status, content_type="application/json")


@asynccontextmanager
async def serving(made: Service, port: int) -> AsyncIterator[int]:
    """Its port, 0 for a free one."""
    app = web.Application()
    app.router.add_post("/{tail:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    async with serving(made, 0) as port:
        made.url = f"http://127.0.0.1:{port}"
        yield made


def http_gate(url: str, **spec: Any) -> Gate:
    http = {"url": f"{url}/judge", "headers": [{"name": "X-Key", "value": "v"}]}
    return Gate.model_validate({"source": "HTTP", "http": http, "metrics": BARS, **spec})


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"metrics": {"accuracy": 0.95, "latency": 1.0}, "samples": 100}, GateVerdict.PASS),
        ({"metrics": {"accuracy": 0.9, "latency": 2.0}, "samples": 100}, GateVerdict.PASS),
        ({"metrics": {"accuracy": 0.89, "latency": 1.0}, "samples": 100}, GateVerdict.FAIL),
        ({"metrics": {"accuracy": 0.95, "latency": 2.1}, "samples": 100}, GateVerdict.FAIL),
        ({"metrics": {"accuracy": 0.95}, "samples": 100}, GateVerdict.INCONCLUSIVE),
        ({"metrics": {"accuracy": "0.95", "latency": 1.0}, "samples": 100}, GateVerdict.INCONCLUSIVE),
        ({"metrics": {"accuracy": True, "latency": 1.0}, "samples": 100}, GateVerdict.INCONCLUSIVE),
        ('{"metrics": {"accuracy": NaN, "latency": 1.0}, "samples": 100}', GateVerdict.INCONCLUSIVE),
        ({"metrics": {"accuracy": 0.95, "latency": 1.0}, "samples": 9}, GateVerdict.INCONCLUSIVE),
        ({"metrics": {"accuracy": 0.95, "latency": 1.0}}, GateVerdict.INCONCLUSIVE),
    ],
)
async def test_http_figures_are_held_against_the_bars(
    service: Service, opener: SourceOpener, answer: Any, verdict: GateVerdict
) -> None:
    service.answer = answer
    found = await measure(opener, http_gate(service.url, minSamples=10))
    assert found.verdict is verdict, found.reason
    (asked,) = service.asked
    assert (asked["path"], asked["header"]) == ("/judge", "v")
    assert asked["body"]["candidate"]["grpc"] == "10.0.0.2:7070"
    assert asked["body"]["baseline"]["http"] == "http://10.0.0.1:7071"
    assert (asked["body"]["rollout"], asked["body"]["revision"]) == ("plan1", "b")


@pytest.mark.parametrize(
    ("status", "answer"),
    [(500, {}), (200, "no json"), (200, []), (200, {"metrics": 3}), (200, {"metrics": {}, "samples": "x"})],
)
async def test_an_answer_that_is_none_is_no_verdict(
    service: Service, opener: SourceOpener, status: int, answer: Any
) -> None:
    service.status, service.answer = status, answer
    with pytest.raises(GateSourceError):
        await measure(opener, http_gate(service.url))


async def test_a_service_that_is_not_there_is_no_verdict(opener: SourceOpener) -> None:
    with pytest.raises(GateSourceError, match="no answer"):
        await measure(opener, http_gate("http://127.0.0.1:9"))


async def test_a_service_that_restarts_is_asked_again(opener: SourceOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing takes connections on its port at first; then it is asked once."""
    monkeypatch.setattr("kvroll_operator.gate.web.CONNECT_PAUSES_SECONDS", (0.05,) * 100)  # whatever else the CPUs do
    answer = {"metrics": {"accuracy": 0.95, "latency": 1.0}, "samples": 100}
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        made = Service(url=f"http://127.0.0.1:{reserved.getsockname()[1]}", answer=answer)
        measuring = asyncio.create_task(measure(opener, http_gate(made.url)))
        await asyncio.sleep(0.02)
        assert not measuring.done()
    async with serving(made, int(made.url.rpartition(":")[2])):
        assert (await measuring).verdict is GateVerdict.PASS
    assert len(made.asked) == 1


def prometheus_gate(url: str, **spec: Any) -> Gate:
    asked = {"address": url, "intervalSeconds": 1, "initialDelaySeconds": 0}
    metric = {"name": "ttft", "query": 'q{pod=~"$(pool)-$(revision)-.*",ns="$(namespace)"}', "max": 1.0}
    return Gate.model_validate({"source": "Prometheus", "prometheus": asked, "metrics": [metric], **spec})


def vector(*values: str) -> dict[str, Any]:
    result = [{"metric": {}, "value": [0, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (vector("0.5", "1.0"), GateVerdict.PASS),
        (vector("0.5", "1.5"), GateVerdict.FAIL),
        ({"data": {"resultType": "scalar", "result": [0, "0.5"]}}, GateVerdict.PASS),
        (vector(), GateVerdict.INCONCLUSIVE),
        (vector("NaN"), GateVerdict.INCONCLUSIVE),
        (vector("0.5", "NaN"), GateVerdict.INCONCLUSIVE),
        (vector("0.5", "+Inf"), GateVerdict.INCONCLUSIVE),
    ],
)
async def test_prometheus_values_are_held_against_the_bar(
    service: Service, opener: SourceOpener, answer: Any, verdict: GateVerdict
) -> None:
    service.answer = answer
    found = await measure(opener, prometheus_gate(service.url))
    assert found.verdict is verdict, found.reason
    assert service.asked[0]["path"] == "/api/v1/query"
    assert service.asked[0]["body"]["query"] == 'q{pod=~"chat-b-.*",ns="ns"}'


@pytest.mark.parametrize(
    "answer", [{"data": {"resultType": "matrix", "result": []}}, {"error": "parse"}, [], vector("x")]
)
async def test_what_prometheus_does_not_say_is_no_verdict(service: Service, opener: SourceOpener, answer: Any) -> None:
    service.answer = answer
    with pytest.raises(GateSourceError):
        await measure(opener, prometheus_gate(service.url))


@pytest.mark.parametrize("samples", [0, -5])
def test_figures_that_rest_on_no_sample_are_no_measurement(samples: int) -> None:
    for value in (0.99, 0.01):
        found = judge(
            [GateMetric(name="top1Agreement", min=0.9)], {"top1Agreement": [value]}, samples=samples, min_samples=None
        )
        assert found.verdict is GateVerdict.INCONCLUSIVE
