"""Sources HTTP, Prometheus and Job, each against a server of its own, and the runner over them: limits, time, restarts."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate import Gate
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.gate.finding import Finding, GateSourceError
from kvroll_operator.gate.opener import SourceOpener
from kvroll_operator.gate.runner import GateRunner
from kvroll_operator.rollout.effects import Probe, StartGate
from kvroll_operator.rollout.observed import GateRun
from tests.operator.fake_api import FakeApi

PATHS, OWNER = Paths("ns"), Owner("chat", "pool-uid", "ns")
OLD = Probe("chat-a-0-0-0", "a", "u1/1", "10.0.0.1:7070")
NEW = Probe("chat-b-0-0-0", "b", "u2/1", "10.0.0.2:7070")
EFFECT = StartGate("plan1", "Canary", "", OLD, NEW, False)
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


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    app = web.Application()
    app.router.add_post("/{tail:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def opener(tmp_path: Path) -> AsyncIterator[SourceOpener]:
    made = SourceOpener(FakeApi(), OWNER, PATHS, tmp_path)
    yield made
    await made.close()


async def measure(opener: SourceOpener, gate: Gate) -> Finding:
    source = opener(EFFECT, gate, lambda _: None)
    try:
        return await source.measure()
    finally:
        await source.close()


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


def job_gate(**spec: Any) -> Gate:
    container = {"name": "judge", "image": "i", "env": [{"name": "MINE", "value": "1"}]}
    job = {"template": {"template": {"spec": {"containers": [container]}}, "backoffLimit": 6}}
    return Gate.model_validate({"source": "Job", "job": job, **spec})


async def run_job(opener: SourceOpener, gate: Gate, ended: dict[str, Any] | None) -> tuple[Finding, dict[str, Any]]:
    """Plays the kubelet and the Job controller."""
    api = opener.api
    assert isinstance(api, FakeApi)

    async def play() -> dict[str, Any]:
        while not (jobs := [o for o in api.objects.values() if o.get("kind") == "Job"]):
            await asyncio.sleep(0.01)
        name = jobs[0]["metadata"]["name"]
        if ended is not None:
            status = {"containerStatuses": [{"name": "judge", "state": {"terminated": ended}}]}
            metadata = {"name": "pod", "labels": {"batch.kubernetes.io/job-name": name}}
            api.objects[PATHS.pods("pod")] = {"metadata": metadata, "status": status}
        jobs[0]["status"] = {"conditions": [{"type": "Complete" if ended else "Failed", "status": "True"}]}
        return jobs[0]

    playing = asyncio.create_task(play())
    try:
        return await measure(opener, gate), await playing
    finally:
        playing.cancel()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvroll_operator.gate.job.LOOK_SECONDS", 0.01)


FIGURES = json.dumps({"metrics": {"accuracy": 0.95, "latency": 1.0}, "samples": 20})
BAD_FIGURES = json.dumps({"metrics": {"accuracy": 0.5, "latency": 1.0}, "samples": 20})


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("spec", "ended", "verdict"),
    [
        ({}, {"exitCode": 0}, GateVerdict.PASS),
        ({}, {"exitCode": 1, "message": "worse"}, GateVerdict.FAIL),
        ({"minSamples": 30}, {"exitCode": 0, "message": FIGURES}, GateVerdict.INCONCLUSIVE),
        ({"metrics": BARS}, {"exitCode": 0, "message": FIGURES}, GateVerdict.PASS),
        ({"metrics": BARS}, {"exitCode": 0, "message": BAD_FIGURES}, GateVerdict.FAIL),
        ({"metrics": BARS}, {"exitCode": 1, "message": FIGURES}, GateVerdict.FAIL),
    ],
)
async def test_a_jobs_exit_code_and_figures(
    opener: SourceOpener, spec: dict[str, Any], ended: dict[str, Any], verdict: GateVerdict
) -> None:
    found, job = await run_job(opener, job_gate(**spec), ended)
    assert found.verdict is verdict, found.reason
    assert job["spec"]["backoffLimit"] == 0, "an exit code counts once"
    assert job["metadata"]["ownerReferences"][0]["uid"] == "pool-uid"
    pod = job["spec"]["template"]["spec"]
    env = {e["name"]: e["value"] for e in pod["containers"][0]["env"]}
    assert pod["restartPolicy"] == "Never"
    assert env["MINE"] == "1"
    assert env["KVROLL_CANDIDATE_GRPC"] == "10.0.0.2:7070"
    assert env["KVROLL_BASELINE_WORKER"] == "chat-a-0-0-0"
    assert "kvroll.dev/pool" not in job["spec"]["template"].get("metadata", {}).get("labels", {}), (
        "its Pods are no workers"
    )


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("spec", "ended"),
    [
        ({}, {"exitCode": 2}),
        ({}, {"exitCode": 137, "reason": "OOMKilled"}),
        ({}, None),
        ({"metrics": BARS}, {"exitCode": 0}),
    ],
)
async def test_a_job_without_an_answer_is_no_verdict(
    opener: SourceOpener, spec: dict[str, Any], ended: dict[str, Any] | None
) -> None:
    with pytest.raises(GateSourceError):
        await run_job(opener, job_gate(**spec), ended)


@pytest.mark.usefixtures("quick")
async def test_a_job_that_is_not_waited_for_is_suspended_and_one_refused_is_no_verdict(opener: SourceOpener) -> None:
    api = opener.api
    assert isinstance(api, FakeApi)
    source = opener(EFFECT, job_gate(), lambda _: None)
    measuring = asyncio.create_task(source.measure())
    while not api.objects:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    measuring.cancel()
    await asyncio.gather(measuring, return_exceptions=True)
    await source.close()
    (job,) = api.objects.values()
    assert job["spec"]["suspend"] is True
    api.refuse[PATHS.jobs()] = 403
    with pytest.raises(GateSourceError, match="403"):
        await measure(opener, job_gate(timeoutSeconds=7))


class ToldSource:
    """Gives the findings that it was told."""

    pause_seconds = 0.0

    def __init__(self, told: list[Finding | Exception]) -> None:
        self.told, self.is_closed = told, False

    async def measure(self) -> Finding:
        if not self.told:
            await asyncio.sleep(3600)
        found = self.told.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None:
        self.is_closed = True


PASS, FAIL, NONE = (Finding(v, v, 5) for v in (GateVerdict.PASS, GateVerdict.FAIL, GateVerdict.INCONCLUSIVE))
GONE = GateSourceError("unreachable")


async def result(source: ToldSource, gate: Gate) -> GateRun:
    done = asyncio.Event()
    runner = GateRunner(lambda effect, gate, progress: source, lambda: 1.0, done.set)
    runner.start(replace(EFFECT, gate_hash=gate.hash), gate)
    await asyncio.wait_for(done.wait(), 5)
    run = runner.run
    assert run is not None
    assert source.is_closed
    await runner.close()
    return run


@pytest.mark.parametrize(
    ("told", "limits", "verdict"),
    [
        ([PASS], {}, "Pass"),
        ([FAIL], {}, "Fail"),
        ([NONE], {}, "Inconclusive"),
        ([GONE], {}, "Inconclusive"),
        ([RuntimeError("bug")], {}, "Inconclusive"),
        ([FAIL, PASS], {"failureLimit": 1}, "Pass"),
        ([FAIL, FAIL], {"failureLimit": 1}, "Fail"),
        ([GONE, NONE, PASS], {"inconclusiveLimit": 2}, "Pass"),
        ([GONE, GONE, GONE], {"inconclusiveLimit": 2}, "Inconclusive"),
        ([GONE, FAIL], {"inconclusiveLimit": 2}, "Fail"),
        ([], {"timeoutSeconds": 1}, "Inconclusive"),
    ],
)
async def test_limits_forgive_and_time_ends(
    told: list[Finding | Exception], limits: dict[str, int], verdict: str
) -> None:
    run = await result(ToldSource(list(told)), http_gate("http://x", **limits))
    assert (run.is_over, run.verdict) == (True, verdict)
    assert hashlib.sha256(run.report.encode()).hexdigest() == run.digest
    report = json.loads(run.report)
    assert (report["verdict"], report["point"], report["candidateRevision"]) == (verdict, "Canary", "b")
    assert run.reason


async def test_prometheus_must_pass_so_many_times() -> None:
    gate = prometheus_gate("http://x", minSamples=3)
    run = await result(ToldSource([PASS, PASS, PASS]), gate)
    assert (run.verdict, run.samples) == ("Pass", 3)
    run = await result(ToldSource([PASS, PASS, FAIL]), gate)
    assert run.verdict == "Fail"


async def test_another_start_ends_the_run_and_its_result_is_lost() -> None:
    sources = [ToldSource([]), ToldSource([PASS])]
    waiting = list(sources)
    done = asyncio.Event()
    runner = GateRunner(lambda effect, gate, progress: waiting.pop(0), lambda: 1.0, done.set)
    gate = http_gate("http://x")
    runner.start(EFFECT, gate)
    await asyncio.sleep(0.01)
    runner.start(replace(EFFECT, point="Final"), gate)
    await asyncio.wait_for(done.wait(), 5)
    assert runner.run is not None
    assert (runner.run.point, runner.run.verdict) == ("Final", "Pass")
    assert sources[0].is_closed
    runner.stop()
    assert runner.run is None
    await runner.close()
