"""The main job, live: change the precision of a running pool on a real cluster while chat sessions stream, and report what it cost.

Run by `make demo`, which also sets everything up. Exits non-zero if a session was lost or a token doubled, missing or wrong.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from kvroll_cli.demo import install
from kvroll_cli.demo.kube import CommandError, Kube
from kvroll_cli.demo.report import faults
from kvroll_cli.demo.roll import Change, Roll
from kvroll_cli.demo.wave import Shape

NAMESPACE = "kvroll-demo"
POOL = "demo"
WORKERS = 3
# A finished session is replaced by a shorter one, so that something streams whenever a group drains and the end is near.
SHORT = Shape(sessions=20, max_tokens=(360, 320, 400, 340), replacement_tokens=80)
LONG = Shape(sessions=20, max_tokens=(560, 500, 620, 540), replacement_tokens=80)
# First one group after the other, on two spare devices. A weights change makes every session's KV cache stale, so the second change spends
# a spare device a group and leaves Exact out: each session is replayed once, on the new weights, instead of hopping between old workers.
REPLAY_AT_ONCE = ("FinishSoon", "Replay", "Finish")
CHANGES = (
    (SHORT, Change(kv_cache="int8", max_surge=2)),
    (LONG, Change(weights="int8", max_surge=WORKERS, allow=REPLAY_AT_ONCE)),
)


async def demo(console: Console, report_path: Path) -> int:
    """Installs, applies the pool, rolls twice under load and writes the report; returns the exit code."""
    started = time.monotonic()

    def say(step: int, text: str) -> None:
        console.print(f"[bold]{step}[/] at {time.monotonic() - started:.0f} s: {text}")

    kube = Kube(NAMESPACE)
    site = install.Site.find()
    say(1, "helm install kvroll-crds, kvroll")
    await install.install(kube, site)
    await kube.kubectl("delete", "kvpool", POOL, "--ignore-not-found")  # of an earlier run, with that run's patches
    say(2, f"kubectl apply: {WORKERS} workers, weights bf16, KV cache bf16")
    await kube.apply(install.pool(POOL, site, replicas=WORKERS))
    await kube.wait("condition=RolloutComplete", f"kvpool/{POOL}", timeout_seconds=180)
    url = await install.gateway_url(kube)
    report: dict[str, Any] = await facts(kube)
    rolls = []
    for number, (shape, change) in enumerate(CHANGES, start=3):
        say(number, f"{shape.sessions} chats stream; kubectl patch: {change}")
        roll = Roll(kube, POOL, url, install.MODEL_NAME, shape, console)
        await roll.run(change)
        rolls.append(roll)
    say(5, "the last chats end")
    report["changes"] = [await roll.report() for roll in rolls]
    report_path.parent.mkdir(parents=True, exist_ok=True)
    report_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    console.print_json(data=report)
    found = faults(report)
    for fault in found:
        console.print(f"[red]fault:[/] {fault}")
    console.print(f"report: {report_path}")
    return 1 if found else 0


async def facts(kube: Kube) -> dict[str, Any]:
    """What ran: the cluster's version, its nodes, the pool's workers."""
    version = json.loads(await kube.run("kubectl", "version", "-o", "json"))["serverVersion"]["gitVersion"]
    nodes = [n["metadata"]["name"] for n in (await kube.get("nodes"))["items"]]
    pods = (await kube.get("pods", "-l", f"kvroll.dev/pool={POOL}"))["items"]
    return {"kubernetes_version": version, "nodes": nodes, "workers": len(pods)}


def main() -> int:
    """Parses the command line and runs the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--report", type=Path, default=install.ROOT / "build/demo/report.json", help="where to write the report"
    )
    options = parser.parse_args()
    console = Console()
    started = time.monotonic()
    try:
        return asyncio.run(demo(console, options.report))
    except CommandError as error:
        console.print(f"[red]{error}[/]")
        return 1
    finally:
        console.print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
