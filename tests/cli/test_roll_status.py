"""`kvroll status POOL -w` in the middle of a roll: progress, plan beside actual, sessions moving, gate and wall."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import Result

from kvroll_cli.commands.status.view import details
from kvroll_cli.kube.progress import FigureBasis, RollProgress, progress_of
from kvroll_cli.kube.snapshot import Snapshot
from tests.cli.conftest import Recorded
from tests.cli.recorded import BEGAN, drain, gate, plan, pool, wall

Kvroll = Callable[..., Result]
START = datetime.fromisoformat(BEGAN)
PHASES = [
    "Stable",
    "Surging",
    "Warming",
    "Gating",
    "Admitting",
    "Draining",
    "Sealed",
    "Retiring",
    "Updated",
    "Reverting",
]


def rolling(done: int = 1, phase: str = "Rolling", **changes: Any) -> dict[str, Any]:
    """The demo's pool with a plan that began at START and `done` groups through."""
    found = pool(plan=plan(), gate=gate(), wall=wall())
    rollout = {"phase": phase, "beganAt": BEGAN, "groupsUpdated": done, "groupsTotal": 3, "group": f"{done}/3"}
    found["status"]["rollout"] = {**found["status"]["rollout"], **rollout, **changes}
    return found


def seen(found: dict[str, Any], after_seconds: float | None, *drains: dict[str, Any]) -> str:
    """What stands on the screen `after_seconds` the first group's entry; None: in a log."""
    console = Console(width=200)
    now = None if after_seconds is None else START + timedelta(seconds=after_seconds)
    with console.capture() as captured:
        console.print(details(Snapshot.of(found, list(drains)), now))
    return captured.get()


def progress(found: dict[str, Any], after_seconds: float, *drains: dict[str, Any]) -> RollProgress:
    made = progress_of(Snapshot.of(found, list(drains)), START + timedelta(seconds=after_seconds))
    assert made is not None
    return made


def test_groups_through_and_the_drain_under_way_make_the_bar() -> None:
    assert progress(rolling(), 60).fraction == pytest.approx(1.5 / 3)  # its new worker serves; no drain is seen yet
    assert progress(rolling(), 60, drain()).fraction == pytest.approx((1 + 0.5 + 0.5 * (1 - 5 / 6)) / 3)
    other = drain(labels={"kvroll.dev/group": "1", "kvroll.dev/rollout": "r-1"})
    assert progress(rolling(), 60, other).fraction == pytest.approx(1.5 / 3)


def test_the_end_is_expected_by_the_plan_until_a_group_is_through_and_by_the_groups_then() -> None:
    early = progress(rolling(done=0), 30)
    assert (early.left_seconds, early.basis) == (90, FigureBasis.PLANNED)
    later = progress(rolling(done=1), 60)
    assert (later.left_seconds, later.basis) == (60, FigureBasis.OBSERVED)


def test_nothing_is_expected_of_what_does_not_move() -> None:
    for phase in ("Paused", "AwaitingApproval", "Queued", "PartitionReached", "Failed"):
        assert progress(rolling(phase=phase), 60).left_seconds is None
    late = progress(rolling(done=0), 150)
    assert (late.left_seconds, late.is_late) == (None, True)
    assert "later than planned" in seen(rolling(done=0), 150)


def test_a_roll_that_is_over_stands_still() -> None:
    over = rolling(done=3, phase="Complete", finishedAt="2026-01-01T00:01:30Z")
    over["status"]["plan"] = plan(seconds=90)
    made = progress(over, 5000)
    assert (made.fraction, made.elapsed_seconds, made.left_seconds) == (1.0, 90, None)
    assert [(f.name, f.planned, f.actual, f.ratio) for f in made.figures] == [
        ("sessions", 13, 13, 1.0),
        ("moved", 4194304, 3145728, 0.75),
        ("tokens replayed", 0, 0, None),
        ("time", 120, 90, 0.75),
    ]
    assert all(f.is_final for f in made.figures)


def test_another_clock_than_the_api_servers_makes_no_negative_time() -> None:
    assert progress(rolling(done=0), -5).elapsed_seconds == 0


@given(
    phases=st.lists(st.sampled_from(PHASES), max_size=8),
    done=st.integers(0, 8),
    counts=st.tuples(st.integers(0, 50), st.integers(0, 80)),
    after=st.floats(-1e4, 1e6),
)
def test_whatever_a_status_says_the_bar_is_within_its_ends(
    phases: list[str], done: int, counts: tuple[int, int], after: float
) -> None:
    found = rolling(done=done, groupsTotal=len(phases))
    found["status"]["groups"] = [{"id": n, "phase": phase} for n, phase in enumerate(phases)]
    one = drain()
    one["status"] = {"phase": "Draining", "held": counts[0], "remaining": counts[1]}
    made = progress(found, after, one)
    assert 0 <= made.fraction <= 1
    assert made.left_seconds is None or made.left_seconds >= 0


def test_the_whole_of_it_is_on_one_screen() -> None:
    going = drain()
    going["status"]["lastProgressTime"] = BEGAN
    text = seen(rolling(), 75, going)
    assert "53%, 1 of 3 groups, 1 min 15 s, about" in text
    assert "left (observed)" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["moved", "4.0", "MiB", "3.0", "MiB", "0.75", "x", "so", "far"] in lines
    assert ["1", "Draining", "aaaa1111", "bf16/bf16", "bbbb2222", "5", "1", "5", "1", "min", "15", "s"] in lines
    assert "gate Fail at Canary, 120 samples: klMean" in text
    assert ["klMean", "0.0312", "<=", "0.02", "Fail"] in lines
    assert ["top1Agreement", "0.981", ">=", "0.97", "Pass"] in lines
    assert "wall Capacity (modelled): sessions wait for KV pages" in text
    assert "  kvCache int8: more room lets them in (1.94 x the sessions)" in text


def test_a_log_holds_nothing_that_passes_by_itself() -> None:
    going = drain()
    going["status"]["lastProgressTime"] = BEGAN
    text = seen(rolling(), None, going)
    assert "53%, 1 of 3 groups" in text
    assert "left (" not in text
    assert "1 min" not in text


def test_an_older_operator_tells_verdicts_alone() -> None:
    found = rolling()
    found["status"]["gate"] = {"verdict": "NotRun"}
    found["status"]["wall"] = {"verdict": "Unknown", "message": "nothing is known yet"}
    text = seen(found, 10)
    assert "gate " not in text
    assert "wall " not in text


def test_json_tells_the_progress_and_the_verdicts_as_the_api_has_them(api: Recorded, kvroll: Kvroll) -> None:
    api.listed("kvpools", rolling())
    api.listed("kvdrains", drain())
    before = datetime.now(UTC)
    found = json.loads(kvroll("status", "-o", "json").stdout)["pools"][0]
    assert found["status"]["gate"] == gate()
    assert found["status"]["wall"] == wall()
    assert found["progress"]["groupsDone"] == 1
    elapsed = timedelta(seconds=found["progress"]["elapsedSeconds"])
    assert before - START - timedelta(seconds=1) <= elapsed <= datetime.now(UTC) - START + timedelta(seconds=1)
    assert [f["ratio"] for f in found["progress"]["figures"]][:3] == [1.0, 0.75, None]
    assert (found["drains"][0]["group"], found["drains"][0]["rollout"]) == (1, "r-2")
