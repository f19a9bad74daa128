"""Whether a wall is told from the metrics page of any engine, or said to be unknown: `make bench PART=wall-pages`.

Pages of vLLM, SGLang, TensorRT-LLM, llama.cpp and kvroll, written as those write them, of scenes whose wall follows from the batch, the
model and the device (bench/kvroll_bench/wall_pages). A page is right where every engine on it is found and called what it is. Those that
are `held_back` were written before the rule was run on any and were not used to change it. Writes build/bench/wall_pages.json.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kvroll_bench.wall_pages import CASES, looked

LEAST_PAGES = 30
LEAST_CORRECT = 0.95


def report() -> dict[str, Any]:
    """Every page with what was found."""
    found = [looked(case) for case in CASES]
    held = [one for one in found if one.case.held_back]
    engines = sorted({one.case.engine for one in found})
    return {
        "pages": len(found),
        "correct": round(sum(one.is_right for one in found) / len(found), 4),
        "held_back": {"pages": len(held), "correct": round(sum(one.is_right for one in held) / len(held), 4)},
        "by_engine": {
            engine: {
                "pages": sum(one.case.engine == engine for one in found),
                "correct": sum(one.is_right for one in found if one.case.engine == engine),
            }
            for engine in engines
        },
        "advice_without_evidence": sum(len(one.advice_without_evidence) for one in found),
        "looked_at": [one.row() for one in found],
    }


def faults(found: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    said = [f"{r['page']}: {r['found']}, expected {r['expected']}" for r in found["looked_at"] if not r["right"]]
    bad = found["pages"] < LEAST_PAGES or found["correct"] < LEAST_CORRECT
    return (said if bad else []) + (["advice without evidence"] if found["advice_without_evidence"] else [])


def main(argv: list[str] | None = None) -> int:
    """Prints what was found; 1 where it is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench/wall_pages.json"))
    options = parser.parse_args(argv)
    found = report()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n")
    for row in found["looked_at"]:
        print(
            f"{row['page']:34} {', '.join(row['found']):30} {'right' if row['right'] else 'WRONG: ' + str(row['expected'])}"
        )
    print(
        f"{found['pages']} pages, {found['correct']:.1%} right; advice without evidence: {found['advice_without_evidence']}"
    )
    problems = faults(found)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
