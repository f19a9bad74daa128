"""The report of the wall bench, from what was judged: pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from kvroll_core.wall import Advice, Judged, Wall, classify

CORRECT_SHARE = 0.9
ERROR = 0.3
"""How far a measured ratio may be from the predicted one (the issue's bar)."""
CPU_TAKEN = 0.7
"""Share of a step's time on a CPU below which others took it: such a window says nothing about the wall."""


@dataclass(frozen=True)
class Applied:
    """A change that was advised at a wall, and windows of the same load before and after it."""

    wall: Wall
    advice: Advice | None
    before: Sequence[Judged]
    after: Sequence[Judged]


def by_cpu_time(judged: Judged) -> Wall:
    """The wall by the time in which the engine's thread had a CPU: what a machine of its own would show."""
    counters = judged.counters
    if not counters.step_cpu_seconds or not counters.busy_seconds:
        return judged.verdict.wall
    waited = max(0.0, counters.busy_seconds - counters.step_cpu_seconds)
    shorter = replace(counters, seconds=counters.seconds - waited, busy_seconds=counters.step_cpu_seconds)
    return classify(shorter, judged.machine).wall


def was_taken(judged: Judged) -> bool:
    """Others had the CPUs in that window."""
    share = judged.counters.step_cpu_share
    return share is not None and share < CPU_TAKEN


def wall_summary(wall: Wall, judged: Sequence[Judged], taken: int) -> dict[str, Any]:
    """One entry of `walls[]`; `taken` windows were looked at again, because others had the CPUs."""
    return {
        "wall": str(wall),
        "runs": len(judged),
        "correct": sum(j.verdict.wall is wall for j in judged),
        "correct_by_cpu_time": sum(by_cpu_time(j) is wall for j in judged),
        "windows_taken_by_others": taken,
        "figures": [_figures(j) for j in judged],
    }


def advice_summary(applied: Applied) -> dict[str, Any]:
    """One entry of `advice[]`: the figure that the change is to move, as ratios of after to before, predicted and measured."""
    head: dict[str, Any] = {"wall": str(applied.wall)}
    effect = applied.advice.effect if applied.advice else None
    if applied.advice is None or effect is None or not applied.after:
        return head | {"to": None, "within_30_percent": False}
    if applied.wall is Wall.CAPACITY:
        figure, predicted, of = "sessions", effect.sessions_ratio, _sessions
    else:
        figure, predicted, of = "step_seconds", effect.step_ratio or 1.0, _step_seconds
    before, after = _median(of, applied.before), _median(of, applied.after)
    measured = after / before if before else 0.0
    found = {
        "lever": applied.advice.lever,
        "to": applied.advice.to,
        "figure": figure,
        "before": before,
        "after": after,
        "predicted_ratio": predicted,
        "measured_ratio": measured,
        "same_direction": (measured < 1) == (predicted < 1),
        "within_30_percent": abs(measured / predicted - 1) <= ERROR,
        "tokens_per_second": {
            "before": _median(_tokens_per_second, applied.before),
            "after": _median(_tokens_per_second, applied.after),
        },
    }
    if figure == "step_seconds":
        cpu_before, cpu_after = _median(_step_cpu_seconds, applied.before), _median(_step_cpu_seconds, applied.after)
        found["measured_ratio_by_cpu_time"] = cpu_after / cpu_before if cpu_before else 0.0
    return head | found


def faults(report: dict[str, Any]) -> list[str]:
    """Why this report is a failure, in words; empty when every wall was named and every change did what was said."""
    found = []
    for row in report["walls"]:
        if not row["runs"] or row["correct"] < CORRECT_SHARE * row["runs"]:
            found.append(
                f"{row['wall']}: named in {row['correct']} of {row['runs']} runs"
                f" ({row['correct_by_cpu_time']} by CPU time)"
            )
    for row in report["advice"]:
        if row["to"] is None:
            found.append(f"{row['wall']}: no change was advised, or its worker could not be brought there")
        elif not (row["within_30_percent"] and row["same_direction"]):
            found.append(
                f"{row['wall']}: {row['lever']} {row['to']} was to make {row['figure']} {row['predicted_ratio']:.2f} x,"
                f" made it {row['measured_ratio']:.2f} x"
            )
    return found


def line(judged: Judged) -> str:
    """A window in one line, for people."""
    names = ("bandwidth_used", "compute_used", "kv_used", "waiting_for_room", "busy", "step_cpu")
    values = [(name, judged.verdict.value(name)) for name in names]
    shown = "  ".join(f"{n} {v:.2f}" for n, v in values if v is not None)
    return f"{judged.verdict.wall:10} (by CPU time {by_cpu_time(judged)})  {shown}"


def _figures(judged: Judged) -> dict[str, Any]:
    verdicts = {"wall": str(judged.verdict.wall), "by_cpu_time": str(by_cpu_time(judged))}
    counted = {"seconds": judged.counters.seconds, "steps": judged.counters.steps, "running": judged.counters.running}
    return verdicts | counted | {f.name: f.value for f in judged.verdict.evidence}


def _median(of: Callable[[Judged], float], judged: Sequence[Judged]) -> float:
    return median(map(of, judged)) if judged else 0.0


def _sessions(judged: Judged) -> float:
    return judged.counters.running


def _tokens_per_second(judged: Judged) -> float:
    return judged.counters.generated_tokens / judged.counters.seconds


def _step_seconds(judged: Judged) -> float:
    return (judged.counters.busy_seconds or 0.0) / (judged.counters.steps or 1.0)


def _step_cpu_seconds(judged: Judged) -> float:
    return (judged.counters.step_cpu_seconds or 0.0) / (judged.counters.steps or 1.0)
