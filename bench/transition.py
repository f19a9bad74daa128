"""What one decision costs: a pass of the pure core over a large pool in the middle of a roll, into build/bench/transition.json."""

import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

from kvroll_core.plan import Plan, PlanReason, RolloutRecord, Step, Turn
from kvroll_operator.rollout.facts.desired import Desired
from kvroll_operator.rollout.facts.observed import Observed, Pod, Report, Revision
from kvroll_operator.rollout.transition import transition

REPORT = Path(__file__).parents[1] / "build" / "bench" / "transition.json"
PASSES = 15
OLD, NEW = '{"precision":{"kvCache":"bf16"}}', '{"precision":{"kvCache":"int8"}}'
NOW = 1_000_000.0


def observed(workers: int) -> Observed:
    """A pool whose first half has changed, with one group in turn: its new worker serves, its old one drains next."""
    half = workers // 2
    plan = Plan(
        "id",
        2,
        "b",
        PlanReason.UPDATE,
        NOW,
        "a",
        dict.fromkeys(range(workers), "a"),
        tuple(range(workers)),
        began_at=NOW,
    )
    record = RolloutRecord(plan=plan, turn=(Turn(half, NOW, Step.SURGE),), done=frozenset(range(half)))
    first = Plan("first", 1, "a", PlanReason.INITIAL, NOW)
    revisions = (
        Revision("p-a", "a", "ua", "1", 1, OLD, RolloutRecord(plan=first, stable=1)),
        Revision("p-b", "b", "ub", "1", 2, NEW, record),
    )
    pods = [_worker("b" if group < half else "a", group) for group in range(workers)]
    return Observed(NOW + 60, (*pods, _worker("b", half)), revisions)


def _worker(revision: str, group: int) -> Pod:
    uid = f"{revision}{group}"
    report = Report(f"{uid}/1", "10.0.0.1:7070", True, True, False, sessions=3)
    pod = Pod(f"p-{revision}-{group}-0-0", uid, "1", revision, group, 0, 0, NOW - 900, admitted=True, report=report)
    return replace(pod, phase="Running", scheduled=True, ready_since=NOW - 800, started_at=NOW - 850)


def pass_ms(workers: int) -> float:
    """Median milliseconds of CPU of one pass: it waits for nothing, so what else the machine does is not its cost."""
    desired, seen = Desired("p", "u", NEW, replicas=workers), observed(workers)
    taken = []
    for _ in range(PASSES):
        begun = time.process_time()
        transition(desired, seen)
        taken.append(1000 * (time.process_time() - begun))
    return round(statistics.median(taken), 2)


def main() -> None:
    """Measures and writes."""
    figures = {"workers_200_ms": pass_ms(200), "workers_1000_ms": pass_ms(1000)}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
