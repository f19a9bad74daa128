"""Source Job, with its controller and kubelet played by the test."""

import asyncio
import json
from typing import Any

import pytest

from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate import Gate
from kvroll_operator.gate.finding import Finding, GateSourceError
from kvroll_operator.gate.opener import SourceOpener
from tests.operator.fake_api import FakeApi
from tests.operator.gate_subject import EFFECT, PATHS, measure

BARS = [{"name": "accuracy", "min": 0.9}, {"name": "latency", "max": 2.0}]


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
