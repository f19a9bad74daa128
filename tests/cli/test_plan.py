"""`kvroll plan`: of a live rollout as the operator shows it, and of a file that nobody applied, by what the workers say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.json_format import MessageToDict
from typer.testing import Result

from kvroll.v1 import common_pb2, worker_pb2
from kvroll_core.plan import RolloutRecord
from tests.cli.conftest import Recorded
from tests.cli.recorded import pool, revision

Kvroll = Callable[..., Result]
POD_PATH = "/api/v1/namespaces/demo/pods"
PAGE_BYTES = {"bf16": 737280, "int8": 391680}


def spec(kv_cache: str = "bf16", **changes: Any) -> dict[str, Any]:
    return {
        "replicas": 2,
        "model": {"name": "smollm2", "uri": "file:///models/smollm2"},
        "precision": {"weights": "bf16", "kvCache": kv_cache},
        **changes,
    }


def report(sessions: int) -> dict[str, Any]:
    """A worker with that many sessions of 320 tokens, 10 pages each, that may still generate 4000."""
    lengths = worker_pb2.SessionClass(
        sessions=sessions, tokens=320 * sessions, max_remaining_tokens=4000 * sessions, pages=10 * sessions
    )
    found = worker_pb2.GetReportResponse(
        descriptor=common_pb2.Descriptor(
            format_version=1, weights_id="w", weights_dtype="bf16", kv_format="bf16", max_model_len=8192
        ),
        pages=worker_pb2.PageCounts(total=700, free=600, page_bytes=PAGE_BYTES["bf16"]),
        max_sessions=64,
        lengths=[lengths] if sessions else [],
        model_size=worker_pb2.ModelSize(
            layers=30, hidden=576, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocab=49152,
            tied_head=True, max_positions=8192,
        ),
        memory=worker_pb2.MemoryAsked(kv_bytes=512 << 20, headroom_fraction=0.1, max_batch_tokens=256),
        rates=worker_pb2.MeasuredRates(step_seconds=1000.0),
    )  # fmt: skip
    return MessageToDict(found, preserving_proto_field_name=True)


def pod(group: int, short: str = "aaaa1111") -> dict[str, Any]:
    name = f"demo-{short}-{group}-0-0"
    labels = {"kvroll.dev/pool": "demo", "kvroll.dev/group": str(group), "kvroll.dev/revision": short}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:12Z"}
    metadata = {"name": name, "namespace": "demo", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "status": {"phase": "Running", "conditions": [ready]}}


def cluster(api: Recorded, *sessions: int | None, short: str = "aaaa1111") -> None:
    """A settled bf16 pool; a worker with None does not answer."""
    live = pool(rollout={"id": "r-1", "phase": "Complete"}, blocked="")
    live["spec"] = spec()
    api.one("kvpools", live)
    found = revision(1, "aaaa1111", RolloutRecord(stable=1))
    content = {**spec(), "engine": {"image": "kvroll:1"}}
    del content["replicas"]
    found["data"]["content"] = json.dumps(content)
    api.revisions(found)
    pods = [pod(group, short) for group in range(len(sessions))]
    api.answers[POD_PATH] = {"apiVersion": "v1", "kind": "PodList", "items": pods}
    for item, count in zip(pods, sessions, strict=True):
        if count is not None:
            api.answers[f"{POD_PATH}/{item['metadata']['name']}:7071/proxy/report"] = report(count)


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    def write(**changes: Any) -> str:
        document = {
            "apiVersion": "kvroll.dev/v1alpha1",
            "kind": "InferencePool",
            "metadata": {"name": "demo", "namespace": "demo"},
            "spec": spec(**{"kv_cache": "int8", **changes}),
        }
        path = tmp_path / "pool.yaml"
        path.write_text(f"kind: ConfigMap\n---\n{yaml.safe_dump(document)}")
        return str(path)

    return write


def test_a_file_is_priced_by_what_the_workers_hold_and_nothing_is_written(
    api: Recorded, kvroll: Kvroll, file: Callable[..., str]
) -> None:
    cluster(api, 4, 2)
    done = kvroll("plan", "-f", file(), "-o", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["from"], found["to"]) == ("bf16/bf16", "bf16/int8")
    cost = found["plan"]["cost"]
    assert cost["ways"] == [{"way": "Convert", "sessions": 6, "bytes": 60 * PAGE_BYTES["int8"], "tokens": 0}]
    assert (cost["sessions"], cost["bytesToMove"], cost["groups"]) == (6, 60 * PAGE_BYTES["int8"], 2)
    rates = {rate["name"]: (rate["value"], rate["source"]) for rate in found["plan"]["rates"]}
    assert rates["stepSeconds"] == (1000.0, "Measured")
    assert rates["startSeconds"] == (12.0, "Measured")
    assert rates["prefillTokenSeconds"][1] == "Assumed"
    assert found["plan"]["blockers"] == []
    assert api.patches == []


def test_the_table_says_what_becomes_of_the_sessions(api: Recorded, kvroll: Kvroll, file: Callable[..., str]) -> None:
    cluster(api, 4, 2)
    out = kvroll("plan", "-f", file()).stdout
    for words in ("bf16/bf16 -> bf16/int8", "Convert", "22.4 MiB", "1 surge devices", "a step 1e+06 ms (measured)"):
        assert words in out, out
    assert "note: quality unmeasured" in out


def test_a_blocker_can_be_the_exit_code(api: Recorded, kvroll: Kvroll, file: Callable[..., str]) -> None:
    cluster(api, 4, 2)
    path = file(engine={"kvMemory": "4Mi"}, rollout={"approval": "Plan"})
    done = kvroll("plan", "-f", path, "--exit-code")
    assert done.exit_code == 3
    assert "DoesNotFit: one session of max_model_len 8192 needs" in done.stdout
    assert "AwaitingApproval" in done.stdout


def test_what_runs_already_would_not_roll(api: Recorded, kvroll: Kvroll, file: Callable[..., str]) -> None:
    cluster(api, 4, 2)
    assert "nothing would roll" in kvroll("plan", "-f", file(kv_cache="bf16")).stdout


def test_a_silent_worker_is_named_and_silence_of_all_is_an_error(
    api: Recorded, kvroll: Kvroll, file: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    cluster(api, 4, None)
    assert "do not say what they hold" in kvroll("plan", "-f", file()).stdout
    cluster(api, None, None)
    api.answers.pop(f"{POD_PATH}/demo-aaaa1111-0-0-0:7071/proxy/report")  # of the first cluster
    assert kvroll("plan", "-f", file()).exit_code == 1
    assert "get pods/proxy" in capfd.readouterr().err


def test_an_answer_that_is_no_report_is_a_silent_worker(
    api: Recorded, kvroll: Kvroll, file: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    cluster(api, 4, 2)
    api.answers[f"{POD_PATH}/demo-aaaa1111-1-0-0:7071/proxy/report"] = b"<html>another program</html>"
    assert "do not say what they hold" in kvroll("plan", "-f", file()).stdout
    cluster(api, 2)
    api.answers[f"{POD_PATH}/demo-aaaa1111-0-0-0:7071/proxy/report"] = b"<html>another program</html>"
    assert kvroll("plan", "-f", file()).exit_code == 1
    assert "expected a report of worker demo-aaaa1111-0-0-0" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: Pod", "expected one InferencePool of kvroll.dev/v1alpha1"),
        ("a: [", "expected YAML"),
        (
            "{apiVersion: kvroll.dev/v1alpha1, kind: InferencePool, metadata: {name: demo}, spec: {replica: 1}}",
            "replica: Extra inputs",
        ),
    ],
)
def test_a_wrong_file_is_refused(
    api: Recorded, kvroll: Kvroll, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    assert kvroll("plan", "-f", str(path)).exit_code == 1
    assert says in capfd.readouterr().err


def test_a_live_rollout_shows_planned_beside_actual(api: Recorded, kvroll: Kvroll) -> None:
    plan = {
        "id": "r-2",
        "cost": {"sessions": 12, "held": 12, "groups": 3, "bytesToMove": 5 << 20, "seconds": 130},
        "actual": {"held": 13, "bytesMoved": 6 << 20, "tokensReplayed": 0, "seconds": 151},
    }
    api.one("kvpools", pool(plan=plan))
    api.revisions(revision(1, "aaaa1111", RolloutRecord()), revision(2, "bbbb2222", RolloutRecord(), kv_cache="int8"))
    done = kvroll("plan", "demo")
    assert "bf16/bf16 -> bf16/int8  rollout r-2 Rolling" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["sessions", "12", "13", "1.08", "x"] in rows
    assert ["moved", "5.0", "MiB", "6.0", "MiB", "1.20", "x"] in rows
    assert ["time", "2", "min", "10", "s", "2", "min", "31", "s", "1.16", "x"] in rows


def test_rates_that_differ_make_a_range_of_seconds(api: Recorded, kvroll: Kvroll) -> None:
    cost = {"sessions": 12, "held": 12, "groups": 3, "seconds": 130, "secondsLow": 50, "secondsHigh": 200}
    rates = [{"name": "stepSeconds", "value": 0.2, "source": "Measured", "low": 0.1, "high": 0.3}]
    api.one("kvpools", pool(plan={"id": "r-2", "cost": cost, "rates": rates}))
    api.revisions(revision(1, "aaaa1111", RolloutRecord()), revision(2, "bbbb2222", RolloutRecord(), kv_cache="int8"))
    shown = kvroll("plan", "demo").stdout
    assert "3 groups in about 50 s to 3 min 20 s, as the workers' rates differ; " in " ".join(shown.split())
    assert "a step 200 ms (measured, 100 to 300)" in " ".join(shown.split())


def test_plan_needs_one_subject(kvroll: Kvroll, capfd: pytest.CaptureFixture[str]) -> None:
    assert kvroll("plan").exit_code == 2
    assert "expected POOL or --file, found neither" in capfd.readouterr().err


def test_approve_is_for_a_rollout_that_waits(api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]) -> None:
    api.one("kvpools", pool())
    assert kvroll("approve", "demo").exit_code == 1
    assert "that waits for approval, found Rolling" in capfd.readouterr().err
    api.one("kvpools", pool(rollout={"id": "r-2", "phase": "AwaitingApproval"}))
    assert kvroll("approve", "demo").exit_code == 0
    assert api.patches[0][2] == {"metadata": {"annotations": {"kvroll.dev/request": "approve@r-2"}}}
