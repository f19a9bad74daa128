"""How near a plan's seconds, bytes and tokens are to those of its roll, into build/bench/plan.json.

Seconds hang on what else the machine does, so they are judged here and in no test: by rates that the workers measured in the same
minutes, on `kvroll up`, as planned over actual. Run it on a quiet machine.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from kvroll_bench.planned import PLANNED_CASES, planned_and_actual
from kvroll_bench.trial import TrialPool
from kvroll_cli.demo.backends.embedded import EmbeddedBackend

REPORT = Path(__file__).parents[1] / "build" / "bench" / "plan.json"
SECONDS_WITHIN = (0.5, 2.0)
"""Planned over actual."""


async def measure() -> list[dict[str, Any]]:
    """One pool after the other, on a `kvroll up` of its own."""
    backend = EmbeddedBackend()
    await backend.start()
    try:
        return [await _one(backend, name) for name in PLANNED_CASES]
    finally:
        await backend.stop()


async def _one(backend: EmbeddedBackend, name: str) -> dict[str, Any]:
    pool = TrialPool(backend, f"planned-{name}", await backend.gateway_url())
    try:
        plan = await planned_and_actual(pool, PLANNED_CASES[name])
    finally:
        await pool.objects.delete("kvpool", pool.name, 180)
    cost, actual = plan["cost"], plan["actual"]
    ratio = cost["seconds"] / actual["seconds"] if actual["seconds"] else None
    return {
        "change": name,
        "planned_seconds": cost["seconds"],
        "planned_seconds_low": cost.get("secondsLow"),
        "planned_seconds_high": cost.get("secondsHigh"),
        "actual_seconds": actual["seconds"],
        "seconds_ratio": ratio and round(ratio, 3),
        "held": [cost["held"], actual["held"]],
        "bytes_moved": [cost["bytesToMove"], actual["bytesMoved"]],
        "tokens_replayed": [cost["tokensToReplay"], actual["tokensReplayed"]],
    }


def main() -> None:
    """Exit code 1 when a plan's seconds are further off than a factor of two."""
    changes = asyncio.run(measure())
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({"changes": changes}, indent=2) + "\n", encoding="utf-8")
    for change in changes:
        print("  ".join(f"{key} {value}" for key, value in change.items()))
    low, high = SECONDS_WITHIN
    if off := [c["change"] for c in changes if not c["seconds_ratio"] or not low <= c["seconds_ratio"] <= high]:
        sys.exit(f"expected planned over actual seconds between {low} and {high}, found further off: {', '.join(off)}")


if __name__ == "__main__":
    main()
