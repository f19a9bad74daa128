"""The runner over any source: what is forgiven, when it is over, what is lost."""

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate import Gate
from kvroll_operator.gate.finding import Finding, GateSourceError
from kvroll_operator.gate.runner import GateRunner
from kvroll_operator.rollout.facts.observed import GateRun
from tests.operator.gate_subject import EFFECT


def http_gate(**spec: Any) -> Gate:
    metrics = [{"name": "accuracy", "min": 0.9}]
    return Gate.model_validate({"source": "HTTP", "http": {"url": "http://x"}, "metrics": metrics, **spec})


def prometheus_gate(**spec: Any) -> Gate:
    asked = {"address": "http://x", "intervalSeconds": 1}
    metrics = [{"name": "ttft", "query": "q", "max": 1.0}]
    return Gate.model_validate({"source": "Prometheus", "prometheus": asked, "metrics": metrics, **spec})


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
        pytest.param([], {"timeoutSeconds": 1}, "Inconclusive", marks=pytest.mark.slow),
    ],
)
async def test_limits_forgive_and_time_ends(
    told: list[Finding | Exception], limits: dict[str, int], verdict: str
) -> None:
    run = await result(ToldSource(list(told)), http_gate(**limits))
    assert (run.is_over, run.verdict) == (True, verdict)
    assert hashlib.sha256(run.report.encode()).hexdigest() == run.digest
    report = json.loads(run.report)
    assert (report["verdict"], report["point"], report["candidateRevision"]) == (verdict, "Canary", "b")
    assert run.reason


async def test_prometheus_must_pass_so_many_times() -> None:
    gate = prometheus_gate(minSamples=3)
    run = await result(ToldSource([PASS, PASS, PASS]), gate)
    assert (run.verdict, run.samples) == ("Pass", 3)
    run = await result(ToldSource([PASS, PASS, FAIL]), gate)
    assert run.verdict == "Fail"


async def test_another_start_ends_the_run_and_its_result_is_lost() -> None:
    sources = [ToldSource([]), ToldSource([PASS])]
    waiting = list(sources)
    done = asyncio.Event()
    runner = GateRunner(lambda effect, gate, progress: waiting.pop(0), lambda: 1.0, done.set)
    gate = http_gate()
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
