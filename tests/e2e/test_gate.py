"""The quality gate on real workers: a bar that int8 KV holds, one that fp8 KV cannot, and a baseline kept over a drain."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from kvroll_bench.trial import TrialPool
from kvroll_cli.demo.load.pace import Lasting
from kvroll_cli.demo.load.transcript import Transcript
from kvroll_cli.demo.report import Window, faults
from kvroll_cli.demo.roll import DemoChange, Roll

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(600)]
PROMPT = "Describe the day of a lighthouse keeper."
TOKENS = 300
TEXTS = (
    "The lighthouse stands on a rock at the mouth of the river, and its lamp is lit every evening before the sun has set.",
    "Bread is made from flour, water, salt and yeast; the dough has to rest before it goes into a hot oven.",
    "In the year 1688 the ship left the harbour with forty men aboard and cargo for a colony across the sea.",
    "A triangle has three sides, and the sum of its angles is one hundred and eighty degrees.",
    "The doctor asked the patient to breathe slowly, listened to his heart, and wrote a few words on a sheet of paper.",
    "Rain fell all night on the roofs of the town, and in the morning the streets were wet and empty.",
    "The capital of France is Paris, a city on the river Seine that is known for its museums and its food.",
    "She opened the old book with care, because its pages were thin and the ink had faded in the light.",
)


async def apply_dataset(pool: TrialPool) -> None:
    lines = "\n".join(json.dumps({"text": text}) for text in TEXTS)
    metadata = {"name": pool.name}
    await pool.objects.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"texts.jsonl": lines}}
    )


def gate(pool: TrialPool, **bar: Any) -> dict[str, Any]:
    dataset = {"configMap": {"name": pool.name, "key": "texts.jsonl"}}
    return {"source": "Builtin", "at": ["Canary"], "dataset": dataset, "metrics": [bar], "minSamples": 4}


async def evidence(pool: TrialPool, status: dict[str, Any]) -> dict[str, Any]:
    """The newest report on the ControllerRevision that the status names; its digest is the status's."""
    revision = await pool.objects.get("controllerrevision", status["gate"]["evidence"])
    stored = json.loads(revision["metadata"]["annotations"]["kvroll.dev/evidence"])[-1]
    assert hashlib.sha256(stored["report"].encode()).hexdigest() == stored["digest"] == status["gate"]["digest"]
    return dict(json.loads(stored["report"]))


def condition(status: dict[str, Any], kind: str) -> tuple[str, str]:
    found = next(c for c in status["conditions"] if c["type"] == kind)
    return found["status"], found["reason"]


def test_gate_passes_int8(pool: TrialPool) -> None:
    async def scenario() -> None:
        await apply_dataset(pool)
        await pool.apply(replicas=2, gate=gate(pool, name="top1Agreement", min=0.9))
        wave = pool.wave(4, Lasting(seconds=20, fewest=140, most=600))
        wave.start()
        roll = Roll(pool.objects, pool.name, wave, DemoChange(kv_cache="int8"))
        await roll.run(timeout_seconds=400)
        status = await pool.status()
        shown = status["gate"]
        assert (shown["verdict"], shown["point"]) == ("Pass", "Canary")
        assert condition(status, "GatePassed") == ("True", "Passed")
        report = await evidence(pool, status)
        (metric,) = [m for m in report["metrics"] if m["name"] == "top1Agreement"]
        assert 0.9 <= metric["value"] <= 1.0
        assert metric["control"] >= 0.99, "the old worker agrees with itself"
        assert report["candidateRevision"] == status["updateRevision"]
        assert len(await pool.pods()) == 2
        assert faults({"changes": [roll.report(await wave.finish(), Window())]}) == []

    asyncio.run(scenario())


def test_gate_holds_fp8(pool: TrialPool) -> None:
    async def scenario() -> None:
        await apply_dataset(pool)
        # fp8 KV costs this model 0.007 to 0.014 nats (docs/quality.md); the old worker differs from itself by none.
        await pool.apply(replicas=2, gate=gate(pool, name="klMean", max=0.0005))
        before = {p["metadata"]["uid"] for p in await pool.pods()}
        transcripts = [Transcript(prompt=PROMPT) for _ in range(4)]
        async with pool.client() as http:
            streams = [asyncio.create_task(pool.chat(http, PROMPT, TOKENS, t)) for t in transcripts]
            await pool.patch(precision={"kvCache": "fp8_e4m3"})
            await pool.until_phase("Failed", timeout_seconds=300)
            await asyncio.gather(*streams)
        status = await pool.status()
        assert (status["gate"]["verdict"], condition(status, "GatePassed")) == ("Fail", ("False", "Failed"))
        assert condition(status, "Stalled") == ("True", "GateFailed")
        assert (await evidence(pool, status))["verdict"] == "Fail"
        async with asyncio.timeout(60):
            while {p["metadata"]["uid"] for p in await pool.pods()} != before:
                await asyncio.sleep(1)
        assert (await pool.status())["ready"] == "2/2", "the old workers serve as before"
        for transcript in transcripts:
            assert (transcript.error, transcript.finish_reason) == (None, "length")
            assert [a.index for a in transcript.arrivals] == list(range(TOKENS))
            assert not transcript.is_wrong()
            assert not transcript.stalls(), "no session moved"

    asyncio.run(scenario())


def test_gate_keeps_baseline(pool: TrialPool) -> None:
    async def scenario() -> None:
        await apply_dataset(pool)
        wish = gate(pool, name="top1Agreement", min=0.9)
        await pool.apply(replicas=1, gate=wish, rollout={"maxSurge": 0, "maxUnavailable": 1})
        old = (await pool.pods())[0]["metadata"]["name"]
        await pool.patch(precision={"kvCache": "int8"})
        await pool.until_rolling()
        await pool.until_complete(300)
        status = await pool.status()
        assert (status["gate"]["verdict"], status["gate"]["point"]) == ("Pass", "Canary")
        report = await evidence(pool, status)
        assert report["baseline"].startswith(old), "the answers of the worker that was drained"
        assert report["baselineWorker"] == "", "nobody was left to ask"
        assert await pool.objects.list("configmap", f"kvroll.dev/pool={pool.name},kvroll.dev/gate=baseline")

    asyncio.run(scenario())
