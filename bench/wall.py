"""Whether the verdict names the wall that a load runs into: `python bench/wall.py`.

One real worker of the small real model behind a real gateway (`kvroll serve`) is brought to each wall on purpose, again and again, and
judged from its own metrics, as `kvroll wall --metrics-url` does. Then the advice at the bandwidth wall is applied: a second worker
with the advised weights, the same load, and the step that was predicted beside the one that came. Writes build/bench/wall.json. CPUs
that others use as well make a worker look as if it waited for nothing (Host): so the load average, and the verdict by the time in which
the engine's thread had a CPU, stand beside it.
"""

import argparse
import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from kvroll_bench.wall_load import Client, Load, under
from kvroll_cli.model_shape import read_shape
from kvroll_cli.scrape import read_sample
from kvroll_cli.wall_verb import Judged, Told, judge
from kvroll_core.wall import Machine, Sample, Wall, classify
from kvroll_worker.models.smollm2 import ensure_model

MODEL = "smollm2"
WEIGHTS = "fp32"  # a small model has little to read: its widest weights make the step wait for memory
POOL_PAGES = 100
SETTLE_SECONDS = 3.0
PAGE_BYTES = 32 * 30 * 3 * 4 * 64  # bf16
LOADS: dict[Wall, Load] = {
    Wall.IDLE: Load(clients=0, prompt=0, answer=0),
    # One row a step reads all weights for one token.
    Wall.BANDWIDTH: Load(clients=1, prompt=64, answer=400, same=True),
    # Prompts that nobody had before, four at a time, a token each: 64 rows a step.
    Wall.COMPUTE: Load(clients=4, prompt=512, answer=1),
    # Two long sessions hold the pool and generate, one row each; others wait for its pages.
    Wall.BOTH: Load(clients=2, prompt=46 * 32, answer=120, same=True, waiting=2),
    # Many short sessions: as many rows as make arithmetic the larger share, and more than the pool holds.
    Wall.CAPACITY: Load(clients=40, prompt=120, answer=60),
}


@asynccontextmanager
async def serving(folder: Path, weights: str) -> AsyncIterator[tuple[str, str]]:
    """A gateway and a worker as `kvroll serve` makes them; where clients and where metrics are."""
    port, metrics = _free_port(), _free_port()
    flags = ["--port", str(port), "--metrics-port", str(metrics), "--model-name", MODEL, "--weights", weights]
    flags += ["--kv-memory", str((POOL_PAGES + 1) * PAGE_BYTES), "--max-model-len", "2048", "--drain-seconds", "0"]
    command = ["-c", "from kvroll_cli.main import main; main()", "serve", "--model", str(folder), *flags]
    process = await asyncio.create_subprocess_exec(sys.executable, *command)
    try:
        url = f"http://127.0.0.1:{metrics}"
        while process.returncode is None:
            with_rates = await _page(url)
            if "kvroll_device_flops_per_second" in with_rates:
                break
            await asyncio.sleep(0.2)
        yield f"http://127.0.0.1:{port}", url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def look(url: str, seconds: float) -> list[Sample]:
    """Samples of a window, four a second."""
    until = time.monotonic() + seconds
    samples = [read_sample(await _page(url), time.monotonic())]
    while time.monotonic() < until:
        await asyncio.sleep(0.25)
        samples.append(read_sample(await _page(url), time.monotonic()))
    return samples


def by_cpu_time(judged: Judged) -> Wall:
    """The wall by the time in which the engine's thread had a CPU: what a machine of its own would show."""
    counters = judged.counters
    if not counters.step_cpu_seconds:
        return judged.verdict.wall
    return classify(replace(counters, busy_seconds=counters.step_cpu_seconds), judged.machine).wall


async def provoke(wall: Wall, client: Client, metrics: str, told: Told, seed: int, seconds: float) -> Judged:
    """The verdict under that wall's load."""
    async with under(LOADS[wall], client, seed):
        await asyncio.sleep(SETTLE_SECONDS)
        if wall in (Wall.CAPACITY, Wall.BOTH):
            await room_is_short(metrics)
        return judge(await look(metrics, seconds), told)


async def bench(folder: Path, runs: int, seconds: float, walls: list[Wall]) -> dict[str, Any]:
    """Every wall so many times on one worker, then the advice at the bandwidth wall."""
    told = Told(read_shape(folder), None, None, Machine(), 1)
    found: dict[Wall, list[Judged]] = {wall: [] for wall in walls}
    async with serving(folder, WEIGHTS) as (url, metrics), httpx.AsyncClient(timeout=None) as http:
        await quiet_rates(metrics)
        client = Client(url, MODEL, http)
        for run in range(runs):
            for wall in walls:
                judged = await provoke(wall, client, metrics, told, run, seconds)
                found[wall].append(judged)
                print(f"{wall:10} -> {_line(judged)}", flush=True)
    report: dict[str, Any] = {"window_seconds": seconds, "walls": [_summary(w, js) for w, js in found.items()]}
    report["machine"] = {**vars(found[walls[0]][0].machine), "load_average": os.getloadavg(), "cpus": os.cpu_count()}
    if found.get(Wall.BANDWIDTH):
        report["advice"] = await advised(folder, found[Wall.BANDWIDTH][-1], told, seconds)
    return report


async def advised(folder: Path, before: Judged, told: Told, seconds: float) -> dict[str, Any]:
    """The first change of weights that was advised, applied: its predicted and its measured step, as ratios to before."""
    advice = next((a for a in before.advice if a.lever == "weights" and a.effect and a.effect.step_ratio), None)
    if advice is None or advice.effect is None or before.load is None:
        return {"advised": None}
    async with serving(folder, advice.to) as (url, metrics), httpx.AsyncClient(timeout=None) as http:
        after = await provoke(Wall.BANDWIDTH, Client(url, MODEL, http), metrics, told, 0, seconds)
    now, then = before.load.step_seconds or 0.0, (after.load.step_seconds if after.load else None) or 0.0
    ratio = {"predicted_step_ratio": advice.effect.step_ratio, "measured_step_ratio": then / now}
    return {"advised": f"weights {advice.to}", **ratio, "step_seconds_before": now, "step_seconds_after": then}


async def room_is_short(metrics: str) -> None:
    """Returns when a session waits for pages: on slow CPUs it takes long to fill them."""
    first = (await look(metrics, 0.0))[0].total("kvroll_waiting_for_room_seconds_total") or 0.0
    while ((await look(metrics, 0.5))[-1].total("kvroll_waiting_for_room_seconds_total") or 0.0) <= first:
        pass


async def quiet_rates(metrics: str) -> None:
    """Returns when the idle worker has measured every dtype, which advice is made of."""
    while 'kind="kv",dtype="mxfp8"' not in (page := await _page(metrics)) and 'dtype="mxfp8",kind="kv"' not in page:
        await asyncio.sleep(0.5)


async def _page(url: str) -> str:
    try:
        async with httpx.AsyncClient(timeout=10.0) as http:
            return (await http.get(f"{url}/metrics")).text
    except httpx.TransportError:
        return ""


def _summary(wall: Wall, judged: list[Judged]) -> dict[str, Any]:
    figures: list[dict[str, Any]] = [
        {
            "wall": str(j.verdict.wall),
            "by_cpu_time": str(by_cpu_time(j)),
            **{f.name: f.value for f in j.verdict.evidence},
        }
        for j in judged
    ]
    return {
        "wall": str(wall),
        "runs": len(judged),
        "correct": sum(j.verdict.wall is wall for j in judged),
        "correct_by_cpu_time": sum(by_cpu_time(j) is wall for j in judged),
        "figures": figures,
    }


def _line(judged: Judged) -> str:
    names = ("bandwidth_used", "compute_used", "kv_used", "waiting_for_room", "busy", "step_cpu")
    values = [(name, judged.verdict.value(name)) for name in names]
    return f"{judged.verdict.wall:10} (by CPU time {by_cpu_time(judged)})  " + "  ".join(
        f"{n} {v:.2f}" for n, v in values if v is not None
    )


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main() -> None:
    """Prints a line a run and writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--window-s", type=float, default=5.0)
    parser.add_argument("--walls", nargs="+", type=Wall, default=list(LOADS))
    parser.add_argument("--out", type=Path, default=Path("build/bench/wall.json"))
    arguments = parser.parse_args()
    report = asyncio.run(bench(ensure_model(), arguments.runs, arguments.window_s, arguments.walls))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    for row in report["walls"]:
        print(f"{row['wall']:10} {row['correct']} of {row['runs']} correct, {row['correct_by_cpu_time']} by CPU time")
    print(report.get("advice", ""))


if __name__ == "__main__":
    main()
