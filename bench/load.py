"""What loading a model costs in time and memory, by weight dtype: `python bench/load.py [--model DIR] [--weights int4 ...]`.

Each dtype loads in a process of its own, on a folder whose files are in the page cache. The peak is the kernel's own (VmHWM),
over what the process had before. `measure` returns the table that is printed; the bound is one layer above the result.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from kvroll_core.budget import WEIGHT_BLOCK, weights_bytes
from kvroll_core.precision.formats import WEIGHT_FORMATS
from kvroll_kernels import dispatch
from kvroll_worker.engine.step.weights import load_weights
from kvroll_worker.models.smollm2 import ensure_model
from kvroll_worker.models.spec import load_spec

Load = dict[str, float]
_CHECKPOINT_BYTES = 2  # an element of a 16-bit checkpoint


class LoadFailedError(RuntimeError):
    """One dtype's process failed; the message ends with what it said."""


def measure(folder: Path, weights: list[str], out: Path | None = None) -> tuple[dict[str, Load], list[str]]:
    """By weight dtype: seconds; the peak and what stays, over what the process had before; what the budget says; one layer as
    it is read (in the wider of checkpoint and result); how many such layers the peak was above what stays. Then, for people, what
    failed: the others go on, and `out` has what there is after each.
    """
    found: dict[str, Load] = {}
    failures = []
    for dtype in weights:
        try:
            found[dtype] = _in_a_process(folder, dtype)
        except LoadFailedError as error:
            failures.append(str(error))
        if out is not None:
            out.write_text(json.dumps(found, indent=2) + "\n")
    return found, failures


def _in_a_process(folder: Path, dtype: str) -> Load:
    command = [sys.executable, __file__, "--model", str(folder), "--here", dtype]
    search = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": search}
    )
    if done.returncode != 0:
        raise LoadFailedError(f"expected {' '.join(command)} to succeed, it said: {done.stderr.strip()[-2000:]}")
    found: Load = json.loads(done.stdout)
    return found


def _here(folder: Path, dtype: str) -> Load:
    ops, spec = dispatch.load("native"), load_spec(folder)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew (proc_pid_clear_refs(5))
    before, began, cpu_began = _status_bytes("VmRSS"), time.perf_counter(), time.process_time()
    kept = load_weights(folder, spec, dtype, ops)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    after, peak = _status_bytes("VmRSS"), _status_bytes("VmHWM")
    assert len(kept.layers) == spec.shape.layers
    planned = weights_bytes(spec.shape, dtype)
    element = max(_CHECKPOINT_BYTES, WEIGHT_FORMATS[dtype].element_bytes(WEIGHT_BLOCK))
    layer = spec.shape.matrix_elements / spec.shape.layers * element
    return {
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "peak_rss_bytes": peak - before,
        "result_bytes": after - before,
        "planned_bytes": planned,
        "layer_bytes": layer,
        "layers_above": round((peak - after) / layer, 2),
    }


def _status_bytes(word: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{word}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"expected {word} in /proc/self/status, found none")


def table(found: dict[str, Load]) -> str:
    """The measurement as a Markdown table, in MiB."""
    lines = [
        "| weights | CPU seconds | peak | stays | budget | a layer | layers above |",
        "|---|---|---|---|---|---|---|",
    ]
    for dtype, load in found.items():
        sizes = " | ".join(
            f"{load[word] / 2**20:.1f}" for word in ("peak_rss_bytes", "result_bytes", "planned_bytes", "layer_bytes")
        )
        lines.append(f"| `{dtype}` | {load['cpu_seconds']:.2f} | {sizes} | {load['layers_above']:.2f} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Prints the table, or with --json the figures; 1 where a dtype failed, after the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="an HF-style folder (default: the small real model)")
    parser.add_argument("--weights", nargs="+", default=list(WEIGHT_FORMATS), choices=list(WEIGHT_FORMATS))
    parser.add_argument("--json", action="store_true", help="print the figures instead of a table")
    parser.add_argument("--out", type=Path, help="write the figures to this file, after each dtype")
    parser.add_argument("--here", choices=list(WEIGHT_FORMATS), help="load this one dtype in this process")
    args = parser.parse_args(argv)
    folder = args.model or ensure_model()
    if args.here:
        print(json.dumps(_here(folder, args.here)))
        return 0
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
    found, failures = measure(folder, args.weights, args.out)
    print(json.dumps(found, indent=2) if args.json else table(found))
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
