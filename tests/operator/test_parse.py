"""What the operator reads out of a Pod as the API server shows it."""

from typing import Any

import pytest

from kvroll_operator.cluster import parse


def pod(container: dict[str, Any], *, ready: bool = False) -> dict[str, Any]:
    labels = {
        "kvroll.dev/revision": "r",
        "kvroll.dev/group": "0",
        "kvroll.dev/index": "0",
        "kvroll.dev/incarnation": "0",
    }
    return {
        "metadata": {
            "name": "p-r-0-0-0",
            "uid": "u",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels,
        },
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "containerStatuses": [{"name": "engine", **container}],
        },
    }


ENDED = {"exitCode": 2, "message": "loading\nerror: needs 10 MiB, has 1 MiB\n"}


@pytest.mark.parametrize(
    ("container", "ready", "failure"),
    [
        ({"state": {"running": {}}}, False, ""),
        ({"state": {"terminated": ENDED}}, False, "error: needs 10 MiB, has 1 MiB"),
        (
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ENDED}},
            False,
            "error: needs 10 MiB, has 1 MiB",
        ),
        (
            {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
            False,
            "OOMKilled",
        ),
        ({"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 9}}}, False, "exit code 9"),
        ({"state": {"running": {}}, "lastState": {"terminated": ENDED}}, True, ""),
        ({"state": {"terminated": {"exitCode": 0, "message": "bye"}}}, False, ""),
    ],
)
def test_a_pods_failure_is_the_last_line_of_a_container_that_ended_with_an_error(
    container: dict[str, Any], ready: bool, failure: str
) -> None:
    assert parse.pod(pod(container, ready=ready), None).failure == failure
