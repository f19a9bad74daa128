"""The built-in gate over the wire against real engines of the small model: verdicts by KV format, and a baseline kept over a drain."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate import Gate
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.gate.opener import SourceOpener
from kvroll_operator.rollout.act.effects import GateProbe, StartGate
from kvroll_worker.engine.engine import Engine
from kvroll_worker.models.smollm2 import ensure_model
from tests.doubles.engine_settings import engine_config
from tests.operator.fake_api import FakeApi
from tests.wire.conftest import MakeWorker

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(900)]
PATHS = Paths("ns")
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


def gate(**bar: Any) -> Gate:
    dataset = {"configMap": {"name": "d", "key": "k"}}
    return Gate.model_validate({"source": "Builtin", "dataset": dataset, "metrics": [bar], "minSamples": 4})


def engine(kv_cache: str) -> Engine:
    config = engine_config(
        ensure_model(), kv_cache=kv_cache, max_model_len=512, max_sessions=4, threads=1, kv_memory_bytes=64 << 20
    )
    return Engine(config)


@pytest.fixture
async def opener(tmp_path: Path) -> AsyncIterator[SourceOpener]:
    api = FakeApi()
    lines = "\n".join(json.dumps({"text": text}) for text in TEXTS)
    await api.create(PATHS.config_maps(), {"metadata": {"name": "d"}, "data": {"k": lines}})
    made = SourceOpener(api, Owner("chat", "u", "ns"), PATHS, tmp_path)
    yield made
    await made.close()


async def test_the_verdict_follows_the_kv_format(make_worker: MakeWorker, opener: SourceOpener) -> None:
    probes = {}
    for word in ("bf16", "int8", "fp8_e4m3"):
        worker = await make_worker(engine(word), name=word, admitting=word == "bf16")
        probes[word] = GateProbe(word, word, worker.instance_id, worker.address)

    async def verdict(word: str, wish: Gate) -> tuple[GateVerdict, dict[str, float]]:
        effect = StartGate("p", "Canary", wish.hash, probes["bf16"], probes[word], False)
        source = opener(effect, wish, lambda _: None)
        found = await source.measure()
        await source.close()
        return found.verdict, {m["name"]: m["value"] for m in found.evidence["metrics"]}

    passed, figures = await verdict("int8", gate(name="top1Agreement", min=0.9))
    assert passed is GateVerdict.PASS
    assert figures["top1Agreement"] < 1.0 or figures["klMean"] > 0, "the caches differ, and it is seen"
    again, same = await verdict("bf16", gate(name="klMean", max=0.0005))
    assert again is GateVerdict.PASS
    assert same["klMean"] == pytest.approx(0, abs=1e-6)
    failed, worse = await verdict("fp8_e4m3", gate(name="klMean", max=0.0005))
    assert failed is GateVerdict.FAIL
    assert worse["klMean"] > figures["klMean"]

    wish = gate(name="klMean", max=0.0005)
    for effect in (
        StartGate("p", "Baseline", wish.hash, probes["bf16"], None, False),
        StartGate("p", "Canary", wish.hash, None, probes["fp8_e4m3"], True),
    ):
        source = opener(effect, wish, lambda _: None)
        found = await source.measure()
        await source.close()
    kept = {m["name"]: m["value"] for m in found.evidence["metrics"]}
    assert found.verdict is GateVerdict.FAIL
    assert kept["klMean"] == pytest.approx(worse["klMean"], rel=1e-5), "a kept baseline measures what a live one does"
