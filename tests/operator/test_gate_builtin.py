"""Source Builtin against workers that score over gRPC: verdicts, kept baselines, datasets, and what is no verdict."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from kvroll.v1.evaluation_pb2_grpc import add_EvaluationServiceServicer_to_server
from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate import Gate
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.gate.finding import Finding, GateSourceError
from kvroll_operator.gate.opener import SourceOpener
from kvroll_operator.rollout.act.effects import GateProbe, StartGate
from tests.operator.fake_api import FakeApi
from tests.operator.stub_scores import StubScores

PATHS = Paths("ns")
OWNER = Owner("chat", "pool-uid", "ns")
TEXTS = [{"text": f"the {n} quick brown foxes jump over {n * 7} lazy dogs"} for n in range(12)]
DATASET = "\n".join(json.dumps(line) for line in TEXTS)
BAR = {"name": "top1Agreement", "min": 0.9}


def gate(**spec: Any) -> Gate:
    return Gate.model_validate(
        {"source": "Builtin", "dataset": {"configMap": {"name": "mine", "key": "d.jsonl"}}, "metrics": [BAR], **spec}
    )


@dataclass
class Site:
    """An old and a new worker, and an API server with the dataset."""

    api: FakeApi
    old: StubScores
    new: StubScores
    effect: StartGate
    opener: SourceOpener

    async def measure(self, wish: Gate, **change: Any) -> Finding:
        source = self.opener(replace(self.effect, gate_hash=wish.hash, **change), wish, lambda _: None)
        try:
            return await source.measure()
        finally:
            await source.close()


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    # The workers here answer by real sockets, so the clock is real too: what is asked again is asked again at once.
    monkeypatch.setattr("kvroll_operator.gate.web.CONNECT_PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr("kvroll_operator.gate.scores.FIRST_PAUSE_SECONDS", 0.0)
    api = FakeApi()
    api.objects[PATHS.config_maps("mine")] = {"metadata": {"name": "mine"}, "data": {"d.jsonl": DATASET}}
    servers, probes, workers = [], [], []
    for name in ("old", "new"):
        worker = StubScores(f"{name}/1")
        server = grpc.aio.server()
        add_EvaluationServiceServicer_to_server(worker, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        workers.append(worker)
        probes.append(GateProbe(name, f"rev-{name}", f"{name}/1", f"127.0.0.1:{port}"))
    effect = StartGate("plan1", "Canary", "", probes[0], probes[1], False)
    opener = SourceOpener(api, OWNER, PATHS, tmp_path)
    yield Site(api, workers[0], workers[1], effect, opener)
    await opener.close()
    for server in servers:
        await server.stop(None)


async def test_a_worker_that_scores_alike_passes(site: Site) -> None:
    found = await site.measure(gate())
    assert found.verdict is GateVerdict.PASS
    assert found.samples >= 8
    (metric,) = [m for m in found.evidence["metrics"] if m["name"] == "top1Agreement"]
    assert metric["bar"] == BAR
    assert metric["value"] == 1.0
    assert metric["control"] == 1.0
    assert found.evidence["baseline"] == "old (revision rev-old)"
    assert site.old.calls > site.new.calls > 0, "the control arm asks the old worker again"


async def test_a_worker_that_is_off_fails(site: Site) -> None:
    site.new.wrong = 0.5
    found = await site.measure(gate())
    assert found.verdict is GateVerdict.FAIL
    assert "top1Agreement" in found.reason


async def test_a_busy_worker_is_asked_again(site: Site) -> None:
    site.new.refuse = [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE]
    assert (await site.measure(gate())).verdict is GateVerdict.PASS


async def test_another_instance_is_no_verdict(site: Site) -> None:
    site.new.instance_id = "new/2"
    with pytest.raises(GateSourceError, match="FAILED_PRECONDITION"):
        await site.measure(gate())


async def test_a_text_that_can_never_be_scored_is_no_verdict(site: Site) -> None:
    site.new.refuse = [grpc.StatusCode.INVALID_ARGUMENT]
    with pytest.raises(GateSourceError, match="INVALID_ARGUMENT"):
        await site.measure(gate())


async def test_a_kept_baseline_is_measured_against_after_the_old_worker_has_gone(site: Site) -> None:
    wish = gate()
    kept = await site.measure(wish, point="Baseline", candidate=None)
    assert kept.verdict is GateVerdict.PASS
    calls = site.old.calls
    found = await site.measure(wish, baseline=None, is_kept=True)
    assert (found.verdict, site.old.calls) == (GateVerdict.PASS, calls)
    assert found.evidence["baseline"] == "old (revision rev-old)"
    site.new.wrong = 0.5
    assert (await site.measure(wish, baseline=None, is_kept=True)).verdict is GateVerdict.FAIL


async def test_a_long_baseline_takes_several_objects_and_the_next_replaces_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvroll_operator.gate.kept.CHUNK_BYTES", 500)
    monkeypatch.setattr("kvroll_operator.gate.kept.MOST_CHUNKS", 1000)
    wish = gate()
    await site.measure(wish, candidate=None)
    first = {path for path in site.api.objects if "-gate-" in path}
    assert len(first) > 2
    assert (await site.measure(wish, baseline=None, is_kept=True)).verdict is GateVerdict.PASS
    await site.measure(wish, candidate=None, plan="plan2")
    assert not first & set(site.api.objects)


async def test_a_baseline_that_cannot_be_kept_or_read_is_no_verdict(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = gate()
    with pytest.raises(GateSourceError, match="cannot be read"):
        await site.measure(wish, baseline=None, is_kept=True)
    await site.measure(wish, candidate=None)
    site.api.objects[PATHS.config_maps("mine")]["data"]["d.jsonl"] = DATASET + '\n{"text": "one more"}'
    with pytest.raises(GateSourceError, match="dataset has changed"):
        await site.measure(wish, baseline=None, is_kept=True)
    monkeypatch.setattr("kvroll_operator.gate.kept.CHUNK_BYTES", 10)
    with pytest.raises(GateSourceError, match="shorten the dataset"):
        await site.measure(wish, candidate=None)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (gate(dataset={"configMap": {"name": "none", "key": "k"}}), "404"),
        (gate(dataset={"configMap": {"name": "mine", "key": "k"}}), "expected the key, found d.jsonl"),
        (gate(dataset={"uri": "http://127.0.0.1:9/none"}), "no answer"),
        (gate(dataset={"uri": "file:///etc/hostname"}), "--dataset-folder"),
        (gate(metrics=[{"name": "taskScore", "min": 1}]), "taskScore"),
    ],
)
async def test_a_dataset_that_is_not_there_is_no_verdict(site: Site, wish: Gate, words: str) -> None:
    with pytest.raises(GateSourceError, match=words):
        await site.measure(wish)


async def test_a_dataset_from_the_operators_folder(site: Site, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text(DATASET)
    assert (await site.measure(gate(dataset={"uri": f"file://{tmp_path}/d.jsonl"}))).verdict is GateVerdict.PASS


async def test_what_is_no_dataset_is_not_told(site: Site) -> None:
    site.api.objects[PATHS.config_maps("mine")]["data"]["d.jsonl"] = '{"token": "hunter2"}'
    with pytest.raises(GateSourceError, match="is no dataset") as caught:
        await site.measure(gate())
    assert "hunter2" not in str(caught.value)


async def test_without_a_dataset_the_bundled_one_is_asked(site: Site) -> None:
    found = await site.measure(gate(dataset=None, metrics=[BAR, {"name": "needleRecall", "min": 0.9}]))
    assert found.verdict is GateVerdict.PASS
    assert found.evidence["needles"]
