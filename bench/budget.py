"""Whether the budget is right on any model, or says that it cannot tell: `make bench PART=budget`.

Families: of each that `transformers` has a class for, a tiny instance is built and run, and what its cache holds is counted; ours is to
be the same, element by element. Golden rows: what engines printed in public logs, and what llama.cpp allocates here where it is installed
(`pip install xllamacpp gguf`). Fuzz: configurations that were damaged; each is to be refused in a sentence, or answered, and never a
traceback, nor a number for a family that is not known.
Writes build/bench/budget.json. `--defaults` renews core/kvroll_core/budget/families/defaults.json instead.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from kvroll_bench import family_defaults, llama_cpp
from kvroll_bench.cache_oracle import NOT_COMPARED, Comparison, compared, one_thread, oracle_families
from kvroll_bench.config_fuzz import fuzzed
from kvroll_bench.engine_logs import PRINTED
from kvroll_core.budget import FAMILIES
from kvroll_core.budget.families import ENCODER_DECODERS, ENCODERS, REFUSED

FUZZ_INPUTS = 12_000
MOST_ERROR = 0.01
MOST_WEIGHTS_ERROR = 0.02


def comparison(name: str) -> Comparison:
    """What came of it, also where the class could not be built small."""
    try:
        return compared(name)
    except Exception as error:  # that is a result of the comparison
        return Comparison(name, problem=f"{type(error).__name__}: {str(error)[:200]}")


def comparisons(names: Sequence[str], processes: int) -> Iterator[Comparison]:
    """One a family, in their order; each process has one thread, because the models are tiny."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=one_thread) as pool:
        for name, future in [(name, pool.submit(comparison, name)) for name in names]:
            try:
                yield future.result()
            except Exception as error:  # a model that takes its process along
                yield Comparison(name, problem=f"{type(error).__name__}: {str(error)[:200]}")


def families(only: Sequence[str], processes: int) -> dict[str, Any]:
    """Every family compared; the count of those that are equal."""
    found: list[Comparison] = []
    for one in comparisons(only or oracle_families(), processes):
        found.append(one)
        print(f"{one.family:28} {'equal' if one.equal else one.problem or 'DIFFERENT'}", flush=True)
    return {
        "supported": len(FAMILIES),
        "oracle_checked": len(found),
        "equal": sum(c.equal for c in found),
        "different": [vars(c) for c in found if not c.equal],
        "weights_counted": sorted(c.family for c in found if _is_counted(c)),
        "not_compared": NOT_COMPARED,
        "without_a_class": sorted(n for n in FAMILIES if n not in oracle_families() and n not in NOT_COMPARED),
        "refused": REFUSED,
        "encoders_refused": len(ENCODERS),
        "encoder_decoders_refused": len(ENCODER_DECODERS),
    }


def _is_counted(found: Comparison) -> bool:
    return found.weights_error is not None and found.weights_error <= MOST_WEIGHTS_ERROR


def golden() -> list[dict[str, Any]]:
    """Every line of a log beside ours."""
    said = ("engine", "model", "source", "sizes_from", "line", "unit", "said")
    return [
        {key: getattr(p, key) for key in said} | {"ours": round(p.ours(), 4), "error": round(p.error, 6)}
        for p in PRINTED
    ]


def opened_here() -> dict[str, Any]:
    """What llama.cpp allocates on this machine, where it is installed."""
    if absent := llama_cpp.missing():
        return {"rows": [], "not_run": f"pip install {' '.join(absent)}"}
    return {"rows": list(llama_cpp.allocated()), "not_run": None}


def faults(report: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    checked, fuzz = report["families"], report["fuzz"]
    found = [f"{c['family']}: {c['problem'] or 'another cache'}" for c in checked["different"]]
    said = report["golden"] + report["llama_cpp"]["rows"]
    found += [f"{g['model']}: {g['error']:.1%} from {g['source']}" for g in said if g["error"] > MOST_ERROR]
    found += [f"fuzz: {key} {fuzz[key]}" for key in ("tracebacks", "numbers_for_unknown") if fuzz[key]]
    return found


def main(argv: list[str] | None = None) -> int:
    """Prints a line a family, and at the end what is not as it should be; writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="FAMILY")
    parser.add_argument("--inputs", type=int, default=FUZZ_INPUTS, help=f"of the fuzzer (default {FUZZ_INPUTS})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="that compare families")
    parser.add_argument("--defaults", action="store_true", help="renew defaults.json from the installed transformers")
    parser.add_argument("--out", type=Path, default=Path("build/bench/budget.json"))
    arguments = parser.parse_args(argv)
    if arguments.defaults:
        family_defaults.write()
        return 0
    began = time.monotonic()
    report: dict[str, Any] = {
        "golden": golden(),
        "llama_cpp": opened_here(),
        "fuzz": fuzzed(arguments.inputs, arguments.seed).report(),
    }
    report = {"families": families(arguments.only, arguments.processes), **report, "seconds": 0.0}
    report["seconds"] = round(time.monotonic() - began, 1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    found = faults(report)
    print(json.dumps({k: report["families"][k] for k in ("supported", "oracle_checked", "equal")} | report["fuzz"]))
    for fault in found:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
