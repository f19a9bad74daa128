"""The verbs that ask the operator: one annotation on the rollout that the user saw, never the spec."""

from collections.abc import Callable

import pytest
from typer.testing import Result

from kvroll_cli import cluster
from kvroll_core.plan import OnFailure, Pin, Record
from kvroll_operator.cluster.paths import LABEL, REQUEST_ANNOTATION
from tests.cli.conftest import Recorded
from tests.cli.recorded import pool, revision

Kvroll = Callable[..., Result]


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
    failed = Record(pin=Pin("r-2", "DeadlineExceeded", OnFailure.PAUSE))
    api.revisions(revision(1, "aaaa1111", Record(stable=1)), revision(2, "bbbb2222", failed))
    assert kvroll("retry", "demo").exit_code == 0
    assert api.patches[0][2] == {"metadata": {"annotations": {"kvroll.dev/request": "retry@r-2"}}}


def test_without_a_failure_there_is_nothing_to_retry(
    api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]
) -> None:
    api.one("kvpools", pool())
    api.revisions(revision(1, "aaaa1111", Record(stable=1)))
    assert kvroll("retry", "demo").exit_code == 1
    assert "expected a failed or ended rollout of demo to retry, found none" in capfd.readouterr().err
    assert api.patches == []


def test_operator_and_command_line_mean_the_same_annotation_and_label() -> None:
    assert cluster.REQUEST_ANNOTATION == REQUEST_ANNOTATION
    assert f"{LABEL}pool" == cluster.POOL_LABEL
