"""What the engine costs and saves, in one file: `make bench PART=engine` writes build/bench/engine.json.

Keys: `paging` {waste_percent, contiguous_waste_percent}, `prefix` {hit_token_rate, prefill_tokens_saved}, `load` {seconds,
peak_rss_bytes, result_bytes} by weight dtype, `quality` [] {weights, kv, top1_agreement, kl_mean, kl_p99, ppl_delta, needle_recall}.
Each part is a bench of its own in a process of its own, so that none finds the memory or the threads of another, and writes its own
file (build/bench/paging.json, load.json, quality.json, with more figures) as it goes: what a part that failed had by then is joined too.
It takes about 17 CPU minutes of an AVX2 CPU, 15 of them for the quality of twelve formats; `--only` runs a part alone.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTS = ("paging", "load", "quality")
PAGING_KEYS = ("waste_percent", "contiguous_waste_percent")
PREFIX_KEYS = ("hit_token_rate", "prefill_tokens_saved")
LOAD_KEYS = ("seconds", "peak_rss_bytes", "result_bytes")
QUALITY_KEYS = ("weights", "kv", "top1_agreement", "kl_mean", "kl_p99", "ppl_delta", "needle_recall")
Report = dict[str, Any]


class PartFailedError(RuntimeError):
    """A part ended with an error, its own message stands above, or left no figures. `found` is what it had by then."""

    def __init__(self, message: str, found: Report | None = None) -> None:
        super().__init__(message)
        self.found: Report = found or {}


def paging(read: Report) -> Report:
    """The trace on the largest pool: the waste with the prefix cache off, the savings with it on."""
    runs = [run for run in read["runs"] if run["pages"] == max(one["pages"] for one in read["runs"])]
    off, on = (next(run for run in runs if run["prefix_cache"].lower() == mode) for mode in ("off", "on"))
    return {
        "paging": {key: off[key] for key in PAGING_KEYS},
        "prefix": {key: on[key] for key in PREFIX_KEYS},
    }


def load(read: Report) -> Report:
    """By weight dtype; the peak and what stays are over what the process had before."""
    return {"load": {weights: {key: figures[key] for key in LOAD_KEYS} for weights, figures in read.items()}}


def quality(read: Report) -> Report:
    """A row a format; needles by length and depth stay in quality.json."""
    return {"quality": [{key: row[key] for key in QUALITY_KEYS} for row in read["quality"]]}


SHAPES: dict[str, Callable[[Report], Report]] = {"paging": paging, "load": load, "quality": quality}


def run(part: str, threads: int, folder: Path) -> Report:
    """Runs one part and reads what it found.

    Raises:
        PartFailedError: its process failed, or its file is not what it should be.
    """
    script, out = HERE / f"{part}.py", folder / f"{part}.json"
    if not script.exists():
        raise PartFailedError(f"expected bench/{part}.py, found none; its keys are absent")
    out.unlink(missing_ok=True)  # an older run's figures are not this one's
    command = [sys.executable, str(script), "--out", str(out)]
    if part == "quality":
        command += ["--threads", str(threads)]
    search = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": search})
    try:
        found = SHAPES[part](json.loads(out.read_text()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:
        problem = f"{type(error).__name__}: {error}"
        raise PartFailedError(
            f"expected bench/{part}.py to write its figures to {out}, it ended with {done.returncode}; {problem}"
        ) from error
    if done.returncode:
        raise PartFailedError(f"expected bench/{part}.py to succeed, it ended with {done.returncode}", found)
    return found


def main() -> int:
    """Runs the parts that are there; 1 where one is missing or failed, after the others are written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="keep the other parts of an older file")
    parser.add_argument("--out", type=Path, default=Path("build/bench/engine.json"))
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    kept = asked.out.exists() and set(asked.only) != set(PARTS)
    report: Report = json.loads(asked.out.read_text()) if kept else {}
    failures = []
    for part in asked.only:
        try:
            report |= run(part, asked.threads, asked.out.parent)
        except PartFailedError as error:
            report |= error.found
            failures.append(str(error))
        asked.out.write_text(json.dumps(report, indent=2) + "\n")
    print(f"wrote {asked.out}: {', '.join(report)}")
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
