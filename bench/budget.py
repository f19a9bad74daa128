"""Whether the budget is right on any model, or says that it cannot tell: `make bench PART=budget`.

Families: of each that `transformers` has a class for, a tiny instance is built and run, and what its cache holds is counted; ours is to
be the same, element by element. Golden rows: what engines printed in public logs. Fuzz: configurations that were damaged; each is
to be refused in a sentence, or answered, and never a traceback, nor a number for a family that is not known.
Writes build/bench/budget.json. `--defaults` renews core/kvroll_core/budget/families/defaults.json instead.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from kvroll_bench import family_defaults
from kvroll_bench.cache_oracle import NOT_COMPARED, Comparison, compared, oracle_families
from kvroll_bench.config_fuzz import fuzzed
from kvroll_bench.engine_logs import PRINTED
from kvroll_core.budget import FAMILIES
from kvroll_core.budget.families import ENCODER_DECODERS, ENCODERS, REFUSED

FUZZ_INPUTS = 12_000
MOST_ERROR = 0.01
MOST_WEIGHTS_ERROR = 0.02


def families(only: list[str]) -> dict[str, Any]:
    """Every family compared; the count of those that are equal."""
    found: list[Comparison] = []
    for name in only or oracle_families():
        try:
            found.append(compared(name))
        except Exception as error:  # a class that cannot be built small is a result of the comparison
            found.append(Comparison(name, problem=f"{type(error).__name__}: {str(error)[:200]}"))
        print(f"{name:28} {'equal' if found[-1].equal else found[-1].problem or 'DIFFERENT'}", flush=True)
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
    return [
        {"engine": p.engine, "model": p.model, "source": p.source, "line": p.line, "unit": p.unit, "said": p.said,
         "ours": round(p.ours(), 4), "error": round(p.error, 6)}
        for p in PRINTED
    ]  # fmt: skip


def faults(report: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    checked, fuzz = report["families"], report["fuzz"]
    found = [f"{c['family']}: {c['problem'] or 'another cache'}" for c in checked["different"]]
    found += [f"{g['model']}: {g['error']:.1%} from {g['source']}" for g in report["golden"] if g["error"] > MOST_ERROR]
    found += [f"fuzz: {key} {fuzz[key]}" for key in ("tracebacks", "numbers_for_unknown") if fuzz[key]]
    return found


def main(argv: list[str] | None = None) -> int:
    """Prints a line a family, and at the end what is not as it should be; writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="FAMILY")
    parser.add_argument("--inputs", type=int, default=FUZZ_INPUTS, help=f"of the fuzzer (default {FUZZ_INPUTS})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--defaults", action="store_true", help="renew defaults.json from the installed transformers")
    parser.add_argument("--out", type=Path, default=Path("build/bench/budget.json"))
    arguments = parser.parse_args(argv)
    if arguments.defaults:
        family_defaults.write()
        return 0
    began = time.monotonic()
    report: dict[str, Any] = {"golden": golden(), "fuzz": fuzzed(arguments.inputs, arguments.seed).report()}
    report = {"families": families(arguments.only), **report, "seconds": 0.0}
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
