"""How often the gate's judge is wrong where the truth is known: `make bench PART=gate-errors`, a part of `make bench PART=gate`.

Writes `error_rates` of build/bench/gate.json: [] {candidate, over, error, bar, margin, trials, false_rate, promised, holds, …}. The
candidates are KV formats of this engine on SmolLM2-135M, of which the whole bundled dataset is scored once (kept under
build/bench/gate_scores until a source changes); int8 and kivi4 meet a bar of 0.97, fp8_e4m3 and mxfp8 miss it. `noise` rows draw control
and candidate with the same share of positions that change by chance; where the candidate is the baseline itself, Fail is the error.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from kvroll_bench.error_rates import (
    DATASET,
    FALSE_ACCEPT,
    FALSE_REJECT,
    SAMPLE,
    Comparisons,
    Population,
    Row,
    measured,
    rows,
)
from kvroll_bench.gate_scores import Candidate, scores
from kvroll_bench.keyed_report import merge_key
from kvroll_core.gate import bundled

BASE = Candidate("bf16")
CANDIDATES = tuple(map(Candidate, ("int8", "kivi4", "fp8_e4m3", "mxfp8")))
MARGINS = (0.2, 0.5, 1.0, 2.0, 3.0)
"""Points of 100."""
BAR = 0.97
"""Of docs/quality.md's verdicts: the margin to it is each candidate's own."""
NOISE = 0.01
TRIALS = 200
"""Of a row of samples, which holds five times the prompts; twice as many of one over the dataset."""
Report = dict[str, Any]


@cache
def population(name: str, noise: float) -> tuple[Population, Comparisons, float]:
    """A candidate's, by its name, with its truth; `BASE` is the baseline against itself."""
    texts = [one.text for one in bundled().texts]
    base = scores(BASE, bundled(), 1)
    found = scores(next(c for c in (BASE, *CANDIDATES) if c.name == name), bundled(), 1)
    made, compared = (
        Population.of(name if not noise else f"{name} with noise", texts, base, found, noise),
        Comparisons(),
    )
    return made, compared, made.truth(compared)


def planned(trials: int) -> list[tuple[str, float, Row]]:
    """Every row: the candidate, its noise, and the bar."""
    out = []
    for candidate in CANDIDATES:
        truth = population(candidate.name, 0.0)[2]
        error = FALSE_REJECT if truth >= BAR else FALSE_ACCEPT
        margin = round(100 * abs(truth - BAR), 2)
        for over, count in ((DATASET, 2 * trials), (SAMPLE, trials)):
            made = [*rows(truth, MARGINS, (over,), count), Row(over, error, BAR, margin, count)]
            out += [(candidate.name, 0.0, row) for row in made]
    for name in ("int8", "fp8_e4m3"):
        truth = population(name, NOISE)[2]
        out += [(name, NOISE, row) for row in rows(truth, MARGINS, (SAMPLE,), trials)]
    return out + [(BASE.name, NOISE, row) for row in _above_the_noise(trials)]


def _above_the_noise(trials: int) -> list[Row]:
    """Bars that the baseline itself misses by its noise: a candidate that is no worse never fails by them."""
    made, compared, _ = population(BASE.name, NOISE)
    floor = made.noise_floor(compared)
    bars = {margin: floor + margin / 100 for margin in MARGINS}
    return [
        Row(over, FALSE_REJECT, bar, margin, trials)
        for over in (DATASET, SAMPLE)
        for margin, bar in bars.items()
        if bar < 1
    ]


def one_row(asked: tuple[str, float, Row]) -> Report:
    """In a process of its own."""
    name, noise, row = asked
    made, compared, truth = population(name, noise)
    return {"true_value": round(truth, 6), "noise": noise, **measured(made, row, compared)}


def all_rows(asked: list[tuple[str, float, Row]], processes: int) -> Iterator[Report]:
    """In their order, each as soon as it is there."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        yield from pool.map(one_row, asked)


def error_rates(trials: int, processes: int) -> list[Report]:
    """Scores what is not scored yet, and prints a line a row."""
    for candidate in (BASE, *CANDIDATES):
        scores(candidate, bundled(), processes)
    found = []
    for row in all_rows(planned(trials), processes):
        found.append(row)
        print("  ".join(f"{key} {row[key]}" for key in _SHOWN), flush=True)
    return found


def faults(found: Sequence[Report]) -> list[str]:
    """Rows whose rate is above what is promised, beyond chance."""
    told = "{candidate}: {error} at {bar} in {false} of {trials} trials over the {over}, promised {promised}"
    return [told.format(**row) for row in found if not row["holds"]]


def main(argv: list[str] | None = None) -> int:
    """Leaves with 1 where there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"of each row (default {TRIALS})")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=Path("build/bench/gate.json"))
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    found = error_rates(arguments.trials, arguments.processes)
    merge_key(arguments.out, "error_rates", found)
    merge_key(arguments.out, "error_rates_seconds", round(time.monotonic() - began, 1))
    for fault in faults(found):
        print(f"fault: {fault}", file=sys.stderr)
    return int(bool(faults(found)))


_SHOWN = (
    "candidate",
    "over",
    "error",
    "true_value",
    "bar",
    "margin",
    "trials",
    "false_rate",
    "undecided_rate",
    "mean_samples",
)

if __name__ == "__main__":
    sys.exit(main())
