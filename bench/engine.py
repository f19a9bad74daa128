"""What the engine costs and saves, in one file: `make bench PART=engine` writes build/bench/engine.json.

Keys: `paging` {waste_percent, contiguous_waste_percent}, `prefix` {hit_token_rate, prefill_tokens_saved}, `load` {seconds,
peak_rss_bytes, result_bytes} by weight dtype, `quality` [] {weights, kv, top1_agreement, kl_mean, kl_p99, ppl_delta, needle_recall}.
Each part is a bench of its own in a process of its own, so that none finds the memory or the threads of another.
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
Report = dict[str, Any]


class PartFailedError(RuntimeError):
    """A part's process ended with an error; its own message stands above."""


def paging(read: Report) -> Report:
    """The trace on the largest pool: the waste with the prefix cache off, the savings with it on."""
    runs = [run for run in read["runs"] if run["pages"] == max(one["pages"] for one in read["runs"])]
    off, on = (next(run for run in runs if run["prefix_cache"].lower() == mode) for mode in ("off", "on"))
    return {
        "paging": {key: off[key] for key in ("waste_percent", "contiguous_waste_percent")},
        "prefix": {key: on[key] for key in ("hit_token_rate", "prefill_tokens_saved")},
    }


def load(read: Report) -> Report:
    """By weight dtype; the peak and what stays are over what the process had before."""
    wanted = ("seconds", "peak_rss_bytes", "result_bytes")
    return {"load": {weights: {key: figures[key] for key in wanted} for weights, figures in read.items()}}


def quality(read: Report) -> Report:
    """A row a format, as it is."""
    return {"quality": read["quality"]}


SHAPES: dict[str, Callable[[Report], Report]] = {"paging": paging, "load": load, "quality": quality}


def run(part: str, threads: int, folder: Path) -> Report:
    """Runs one part and reads what it found.

    Raises:
        PartFailedError: its process failed.
    """
    script, out = HERE / f"{part}.py", folder / f"{part}.json"
    command = [sys.executable, str(script), *(["--json"] if part == "load" else ["--out", str(out)])]
    if part == "quality":
        command += ["--threads", str(threads)]
    search = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE if part == "load" else None,
        check=False,
        env={**os.environ, "PYTHONPATH": search},
    )
    if done.returncode:
        raise PartFailedError(f"expected bench/{part}.py to succeed, it ended with {done.returncode}")
    if part == "load":
        out.write_bytes(done.stdout)
    read: Report = json.loads(out.read_text())
    return SHAPES[part](read)


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
            if not (HERE / f"{part}.py").exists():
                raise PartFailedError(f"expected bench/{part}.py, found none; its keys are absent")
            report |= run(part, asked.threads, asked.out.parent)
        except PartFailedError as error:
            failures.append(str(error))
        asked.out.write_text(json.dumps(report, indent=2) + "\n")
    print(f"wrote {asked.out}: {', '.join(report)}")
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
