"""Whether the verdict names the wall that a load runs into, and whether the advice does what it says: `make bench PART=wall`.

One real worker of the small real model behind a real gateway (`kvroll serve`) is brought to each wall on purpose, again and again, and
judged from its own metrics, as `kvroll wall --metrics-url` does. Then what was advised is applied: a worker with the advised weights
under the load of the bandwidth wall, and one with the advised KV dtype under that of the capacity wall; the figure that was predicted
stands beside the one that came. Writes build/bench/wall.json.

The engine has one thread, so that the gateway and the client, which read streams without parsing them, have the other CPUs. Windows in
which others took the engine's CPU all the same are looked at again, and counted.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvroll_bench.wall_load import LOADS, is_there, under
from kvroll_bench.wall_report import Applied, advice_summary, by_cpu_time, faults, line, wall_summary, was_taken
from kvroll_bench.wall_worker import KV_CACHE, THREADS, WEIGHTS, Worker, serving
from kvroll_cli.model_shape import read_shape
from kvroll_core.wall import Advice, Judged, Machine, Told, Wall, judge
from kvroll_worker.models.smollm2 import ensure_model

WINDOW_SECONDS = 4.0
LOOKS = 3
ADVICE_RUNS = 3
FITTING_STEPS = 160
"""Steps of the windows in which the sessions that fit are counted: each of them comes and goes once."""
LEVERS = {Wall.BANDWIDTH: "weights", Wall.CAPACITY: "kvCache"}
BUDGET_SECONDS = 480.0
"""Runs that would begin later are left out: what is slow here is told by their number."""


@dataclass
class Bench:
    """One go through the walls."""

    folder: Path
    runs: int
    walls: list[Wall]
    ends_at: float = field(default_factory=lambda: time.monotonic() + BUDGET_SECONDS)
    taken: dict[Wall, int] = field(default_factory=dict)

    @property
    def is_late(self) -> bool:
        """The time is over."""
        return time.monotonic() > self.ends_at

    async def report(self) -> dict[str, Any]:
        """Every wall on one worker, then the advice at the two walls that have one to measure, each on a worker of its own."""
        found: dict[Wall, list[Judged]] = {}
        fitting: list[Judged] = []
        async with serving(self.folder) as worker:
            await worker.until(lambda _, now: len(now.rates().kv) > 1 and "mxfp8" in now.rates().kv, "measured dtypes")
            for wall in self.walls:
                found[wall] = await self._provoked(worker, wall, self.runs)
            if Wall.CAPACITY in self.walls:
                fitting = await self._provoked(worker, Wall.CAPACITY, 1, FITTING_STEPS)
        walls = [wall_summary(w, js, self.taken.get(w, 0)) for w, js in found.items()]
        before = {Wall.BANDWIDTH: found.get(Wall.BANDWIDTH, []), Wall.CAPACITY: fitting}
        applied = [await self._applied(wall, before[wall]) for wall in LEVERS if wall in self.walls]
        report = {
            "model": self.folder.name,
            "precision": {"weights": WEIGHTS, "kv_cache": KV_CACHE},
            "engine_threads": THREADS,
            "window_seconds": WINDOW_SECONDS,
            "walls": walls,
            "advice": [advice_summary(a) for a in applied],
            "machine": {**_machine(found), "load_average": os.getloadavg(), "cpus": os.cpu_count()},
        }
        return report | {"faults": faults(report)}

    async def _provoked(self, worker: Worker, wall: Wall, runs: int, steps: int = 0) -> list[Judged]:
        """The verdicts of so many runs, each brought about afresh; fewer where the time is over, but one."""
        found: list[Judged] = []
        given_up = False
        while len(found) < runs and not given_up and not (found and self.is_late):
            try:
                judged = await self._run(worker, wall, len(found), steps or LOADS[wall].steps)
                found.append(judged)
                print(f"{wall:10} -> {line(judged)}", flush=True)
            except* TimeoutError as errors:  # a group: it comes out of the group of the clients
                given_up = True
                print(f"{wall:10} given up: {errors.exceptions}", file=sys.stderr, flush=True)
        return found

    async def _run(self, worker: Worker, wall: Wall, seed: int, steps: int) -> Judged:
        await worker.until(lambda began, now: is_there(Wall.IDLE, began, now), "a worker without sessions")
        began = await worker.sample()
        async with under(LOADS[wall], worker.client, seed):
            await worker.until(lambda _, now: is_there(wall, began, now), f"the load of {wall}")
            for look in range(LOOKS):
                judged = judge(await worker.look(WINDOW_SECONDS, steps), self._told())
                if not was_taken(judged) or self.is_late or look == LOOKS - 1:
                    break
                self.taken[wall] = self.taken.get(wall, 0) + 1
                print(f"{wall:10}    others took the CPU: {line(judged)}", flush=True)
        return judged

    async def _applied(self, wall: Wall, before: list[Judged]) -> Applied:
        """The first change of the wall's lever that was advised, applied."""
        advice = _advised(wall, before)
        if advice is None:
            return Applied(wall, None, before, ())
        print(f"{wall:10}    advised: {advice.lever} {advice.to}: {advice.why}", flush=True)
        precision = {"weights" if advice.lever == "weights" else "kv_cache": advice.to}
        async with serving(self.folder, **precision) as worker:
            runs, steps = (1, FITTING_STEPS) if wall is Wall.CAPACITY else (ADVICE_RUNS, 0)
            return Applied(wall, advice, before, await self._provoked(worker, wall, runs, steps))

    def _told(self) -> Told:
        return Told(read_shape(self.folder), None, None, Machine(), 1)


def _advised(wall: Wall, judged: list[Judged]) -> Advice | None:
    """Of the last window whose verdict names the wall: by itself, or by the time that the engine's thread had a CPU."""
    named = [j for j in judged if j.verdict.wall is wall] or [j for j in judged if by_cpu_time(j) is wall]
    changes = named[-1].advice if named else ()
    return next((a for a in changes if a.lever == LEVERS[wall] and a.effect and a.effect.step_ratio), None)


def _machine(found: dict[Wall, list[Judged]]) -> dict[str, float | None]:
    machine = next((j.machine for js in found.values() for j in js), Machine())
    return {"bytes_per_second": machine.bytes_per_second, "flops_per_second": machine.flops_per_second}


def main(argv: list[str] | None = None) -> int:
    """Prints a line a window, and at the end what is not as it should be; writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each wall (default 5)")
    parser.add_argument("--only", nargs="+", type=Wall, choices=list(LOADS), default=list(LOADS), metavar="WALL")
    parser.add_argument("--out", type=Path, default=Path("build/bench/wall.json"))
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    report = asyncio.run(Bench(ensure_model(), arguments.runs, arguments.only).report())
    report["seconds"] = round(time.monotonic() - began, 1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    for row in report["walls"]:
        print(f"{row['wall']:10} {row['correct']} of {row['runs']} correct, {row['correct_by_cpu_time']} by CPU time")
    for row in report["advice"]:
        print(json.dumps(row))
    for fault in report["faults"]:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if report["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
