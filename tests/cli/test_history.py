"""`kvroll history`: every precision the pool had, the last good one, the failed ones."""

import json
from collections.abc import Callable

import pytest
from typer.testing import Result

from kvroll_core.plan import OnFailure, Pin, Plan, PlanReason, RolloutRecord
from kvroll_operator.cluster import objects
from kvroll_operator.rollout.decide.writes import CreateRevision
from tests.cli.conftest import Recorded
from tests.cli.recorded import pool, revision

Kvroll = Callable[..., Result]
FIRST = RolloutRecord(plan=Plan("r-1", 1, "aaaa1111", PlanReason.INITIAL, started_at=0.0), stable=1)
SECOND = RolloutRecord(plan=Plan("r-2", 2, "bbbb2222", PlanReason.UPDATE, started_at=86400.0), stable=2)
THIRD = RolloutRecord(
    plan=Plan("r-3", 3, "cccc3333", PlanReason.UPDATE, started_at=90000.5, ended="DeadlineExceeded"),
    pin=Pin("r-3", "DeadlineExceeded", OnFailure.ROLLBACK),
)


@pytest.fixture
def three(api: Recorded) -> Recorded:
    api.one("kvpools", pool())
    # The API server lists by name, not by age.
    api.revisions(
        revision(3, "cccc3333", THIRD, "int8"), revision(1, "aaaa1111", FIRST), revision(2, "bbbb2222", SECOND, "int8")
    )
    return api


def test_each_revision_oldest_first_with_its_mark(three: Recorded, kvroll: Kvroll) -> None:
    done = kvroll("history", "demo")
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert lines == [
        ["1", "aaaa1111", "bf16", "bf16", "r-1", "Initial", "1970-01-01T00:00:00Z", "kvroll:1"],
        ["2", "bbbb2222", "bf16", "int8", "r-2", "Update", "1970-01-02T00:00:00Z", "stable", "kvroll:1"],
        [
            "3",
            "cccc3333",
            "bf16",
            "int8",
            "r-3",
            "Update",
            "1970-01-02T01:00:00Z",
            "failed:",
            "DeadlineExceeded",
            "kvroll:1",
        ],
    ]


def test_json(three: Recorded, kvroll: Kvroll) -> None:
    found = json.loads(kvroll("history", "demo", "-o", "json").stdout)["revisions"]
    assert [r["stable"] for r in found] == [False, True, False]
    assert [r["failedRollout"] for r in found] == ["", "", "r-3"]


def test_a_pool_without_revisions_yet(api: Recorded, kvroll: Kvroll) -> None:
    api.one("kvpools", pool())
    api.revisions()
    assert kvroll("history", "demo").stdout.strip() == "no revision yet"


def test_an_unknown_pool_is_refused_and_not_an_empty_list(api: Recorded, kvroll: Kvroll) -> None:
    assert kvroll("history", "chta").exit_code == 1


def test_the_recorded_revision_has_the_shape_that_the_operator_writes() -> None:
    content = revision(1, "aaaa1111", FIRST)["data"]["content"]
    written = objects.revision(objects.Owner("demo", "p-1", "demo"), CreateRevision("aaaa1111", content, 1))
    recorded = revision(1, "aaaa1111", FIRST)
    assert written["data"] == recorded["data"]
    assert written["revision"] == recorded["revision"]
    assert written["metadata"]["name"] == recorded["metadata"]["name"]
    assert recorded["metadata"]["labels"].items() <= written["metadata"]["labels"].items()
