"""The verbs that ask the operator: one annotation on the rollout that the user saw, never the spec."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from typer.testing import Result

from kvroll_cli.kube import cluster
from kvroll_core.plan import OnFailure, Pin, RolloutRecord
from kvroll_operator.api.names import LABEL, REQUEST_ANNOTATION
from tests.cli.conftest import Recorded
from tests.cli.recorded import pool, revision

Kvroll = Callable[..., Result]
PODS = "/api/v1/namespaces/demo/pods"


@pytest.mark.parametrize("verb", ["pause", "resume", "abort", "rollback"])
def test_a_verb_writes_one_annotation_and_nothing_else(api: Recorded, kvroll: Kvroll, verb: str) -> None:
    api.one("kvpools", pool())
    done = kvroll(verb, "demo")
    assert done.exit_code == 0
    path, content_type, body = api.patches[0]
    assert path.partition("?")[0] == "/apis/kvroll.dev/v1alpha1/namespaces/demo/kvpools/demo"
    assert content_type == "application/merge-patch+json"
    assert body == {"metadata": {"annotations": {"kvroll.dev/request": f"{verb}@r-2"}}}
    assert len(api.patches) == 1
    assert "r-2" in done.stdout


@pytest.mark.parametrize("rollout", [{}, {"id": "r-2", "phase": "Complete"}])
def test_without_a_rollout_there_is_nothing_to_pause(
    api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str], rollout: dict[str, str]
) -> None:
    api.one("kvpools", pool(rollout=rollout))
    assert kvroll("pause", "demo").exit_code == 1
    assert "expected a rollout of demo to pause, found" in capfd.readouterr().err
    assert api.patches == []


@pytest.mark.parametrize("verb", ["pause", "resume", "abort", "approve"])
def test_a_failed_rollout_can_only_be_left(
    api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    api.one("kvpools", pool(rollout={"id": "r-2", "phase": "Failed"}))
    assert kvroll(verb, "demo").exit_code == 1
    assert "found Failed: retry it, or go back by rollback" in capfd.readouterr().err
    assert api.patches == []
    assert kvroll("rollback", "demo").exit_code == 0
    assert api.patches[0][2] == {"metadata": {"annotations": {"kvroll.dev/request": "rollback@r-2"}}}


def test_an_unknown_pool_is_the_api_servers_to_name(
    api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]
) -> None:
    message = 'kvpools.kvroll.dev "chta" not found'
    api.answers["/apis/kvroll.dev/v1alpha1/namespaces/demo/kvpools/chta"] = (
        404,
        {"kind": "Status", "message": message},
    )
    assert kvroll("pause", "chta").exit_code == 1
    assert capfd.readouterr().err == f"kvroll: {message}\n"


def test_retry_names_the_rollout_that_failed(api: Recorded, kvroll: Kvroll) -> None:
    api.one("kvpools", pool())
    failed = RolloutRecord(pin=Pin("r-2", "DeadlineExceeded", OnFailure.PAUSE))
    api.revisions(revision(1, "aaaa1111", RolloutRecord(stable=1)), revision(2, "bbbb2222", failed))
    assert kvroll("retry", "demo").exit_code == 0
    assert api.patches[0][2] == {"metadata": {"annotations": {"kvroll.dev/request": "retry@r-2"}}}


def test_without_a_failure_there_is_nothing_to_retry(
    api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]
) -> None:
    api.one("kvpools", pool())
    api.revisions(revision(1, "aaaa1111", RolloutRecord(stable=1)))
    assert kvroll("retry", "demo").exit_code == 1
    assert "expected a failed or ended rollout of demo to retry, found none" in capfd.readouterr().err
    assert api.patches == []


def worker(name: str, **metadata: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "demo", "uid": f"uid-of-{name}", **metadata}, "status": {}}


def test_drain_names_the_pod_by_its_uid(api: Recorded, kvroll: Kvroll) -> None:
    api.one("kvpools", pool())
    api.answers[PODS] = {
        "apiVersion": "v1",
        "kind": "PodList",
        "items": [worker("demo-a-0-0-0"), worker("demo-a-1-0-0")],
    }
    done = kvroll("drain", "demo", "demo-a-1-0-0")
    assert done.exit_code == 0
    assert [body for _, _, body in api.patches] == [
        {"metadata": {"annotations": {"kvroll.dev/request": "drain@uid-of-demo-a-1-0-0"}}}
    ]
    assert "asked the operator to drain worker demo-a-1-0-0 of demo" in done.stdout


def test_drain_is_for_a_worker_that_is_there_and_stays(
    api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]
) -> None:
    api.one("kvpools", pool())
    leaving = worker("demo-a-1-0-0", deletionTimestamp="2026-01-01T00:00:00Z")
    api.answers[PODS] = {"apiVersion": "v1", "kind": "PodList", "items": [worker("demo-a-0-0-0"), leaving]}
    assert kvroll("drain", "demo", "other-a-0-0-0").exit_code == 1
    assert "its workers: demo-a-0-0-0, demo-a-1-0-0" in capfd.readouterr().err
    assert kvroll("drain", "demo", "demo-a-1-0-0").exit_code == 1
    assert "found demo-a-1-0-0 leaving already" in capfd.readouterr().err
    assert api.patches == []


@pytest.mark.parametrize(("flag", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_request_is_told_to_programs_too(
    api: Recorded, kvroll: Kvroll, flag: str, read: Callable[[str], Any]
) -> None:
    api.one("kvpools", pool())
    assert read(kvroll("pause", "demo", "-o", flag).stdout) == {
        "namespace": "demo",
        "pool": "demo",
        "request": "pause@r-2",
    }


def test_operator_and_command_line_mean_the_same_annotation_and_label() -> None:
    assert cluster.REQUEST_ANNOTATION == REQUEST_ANNOTATION
    assert f"{LABEL}pool" == cluster.POOL_LABEL
