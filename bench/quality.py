"""What each dtype costs in quality on the small real model: `python bench/quality.py`, a part of `make bench PART=engine`.

Teacher-forced through the engine: every token of a fixed text is scored against the cache that the format itself wrote, and needles at
several depths are asked for in haystacks of several lengths. Each format is compared with weights bf16 and KV bf16 on the same tokens.
The formats of the claim "within 2 points" are asked for 60 needles (3 seeds), the others for 20. Writes build/bench/quality.json after
each format; one that fails is named at the end and costs only its own row. A 135M model is far more sensitive than the large ones that
papers measure, and a few hundred tokens leave about one percent of noise in top-1.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS
from kvroll_core.precision.precision import Precision
from kvroll_worker.engine.engine import Engine, EngineConfig
from kvroll_worker.evaluate.forced import logprobs_of, recall
from kvroll_worker.evaluate.metrics import Logprobs, compare
from kvroll_worker.evaluate.needles import DEPTHS, haystack, recall_of
from kvroll_worker.models.smollm2 import ensure_model

BASE = ("bf16", "bf16")
KNOBS: tuple[dict[str, Any], ...] = (
    {"head": "int8"},
    {"weights": "int4", "weight_block": 32},
    {"weights": "int4", "weight_block": 128},
    {"weights": "int4", "weight_block": 32, "head": "int8"},
    {"kv_cache": "fp8_e4m3", "skip_layers": (0, 29)},
    {"kv_cache": "int8", "skip_layers": (0, 29)},
)
"""Precisions by what is not bf16 or by default; the text alone, without needles (`--knobs`)."""
CLAIMED = (BASE, ("bf16", "fp8_e4m3"))
CLAIMED_SEEDS = 3
"""60 needles: one is 1.7 points, so that "within 2 points of bf16" can be told; with 20 one is 5."""
LENGTHS = (256, 512, 1024, 1536)
MAX_MODEL_LEN = 1792
KV_MEMORY_BYTES = 160 * 2**20
TEXT = """The harbour master kept two clocks on the wall of his office. One showed the time of the town, by which the
shops opened and the trains were supposed to leave; the other showed the time of high water, and it was the second clock
that people asked about. A fishing boat that draws nine feet cannot cross the bar at low tide, whatever the railway
says. In winter the master added a margin of half an hour, because a strong wind from the north holds the water back,
and he wrote the margin on a slate beside the door so that nobody could claim not to have seen it.

When the new lighthouse was built, engineers came from the capital to measure the depth of the channel. They lowered a
weighted line every twenty yards and wrote down what it told them, and at the end of the month they drew a chart. The
chart was accurate on the day it was printed. By the following spring the river had moved a bank of sand sixty yards to
the east, and the first captain who trusted the paper more than the slate spent a night on it, waiting for the sea to
come back. Nobody was hurt. The engineers returned, measured the channel again, and this time they asked the master how
often it changed. He told them that it changed whenever it rained in the hills, and that a chart is a letter from the
past: useful, as long as you remember when it was posted.

After that the chart was printed with a date in large type, and beneath the date there was a line that said how many
weeks the soundings could be trusted. The captains called it the most honest sentence ever printed by the government.
"""


@dataclass(frozen=True)
class Sizes:
    """How much is asked. One haystack of each length a seed, five needles in each; `seeds` None: by format."""

    threads: int
    lengths: Sequence[int] = LENGTHS
    seeds: int | None = None

    def seeds_of(self, weights: str, kv_cache: str) -> int:
        """Haystacks of each length for one format."""
        if self.seeds is not None:
            return self.seeds
        return CLAIMED_SEEDS if (weights, kv_cache) in CLAIMED else 1


def cases() -> list[tuple[str, str]]:
    """(weights, KV): the base, then every KV format at weights bf16 and every weight format at KV bf16, of the one table."""
    kv = [("bf16", name) for name, entry in KV_FORMATS.items() if entry.built and name != "bf16"]
    weights = [(name, "bf16") for name, entry in WEIGHT_FORMATS.items() if entry.built and name != "bf16"]
    return [BASE, *kv, *weights]


def needles(engine: Engine, lengths: Sequence[int], seeds: int) -> dict[str, Any]:
    """Recall over all needles, and by length and by depth."""
    by_length: dict[str, list[float]] = defaultdict(list)
    by_depth: dict[str, list[float]] = defaultdict(list)
    found = []
    for length in lengths:
        for seed in range(seeds):
            for one in recall(engine, haystack(engine.tokenizer.encode, length, seed, DEPTHS)):
                by_length[str(length)].append(one.hit)
                by_depth[str(one.depth)].append(one.hit)
                found.append(one)
    return {
        "needle_recall": recall_of(found),
        "needles": len(found),
        "needle_recall_by_length": {key: sum(hits) / len(hits) for key, hits in by_length.items()},
        "needle_recall_by_depth": {key: sum(hits) / len(hits) for key, hits in by_depth.items()},
    }


def row(weights: str, kv_cache: str, base: Logprobs | None, sizes: Sizes) -> tuple[dict[str, Any], Logprobs]:
    """One line of the table, and the log-probabilities that it is made of; without a base it is its own."""
    began = monotonic()
    engine = engine_of(sizes, weights=weights, kv_cache=kv_cache)
    figures, found = scored(engine, base)
    found_needles = needles(engine, sizes.lengths, sizes.seeds_of(weights, kv_cache))
    measured = {"weights": weights, "kv": kv_cache, **figures, **found_needles}
    return {**measured, "seconds": round(monotonic() - began, 1)}, found


def engine_of(sizes: Sizes, **knobs: Any) -> Engine:
    """The model at that precision."""
    limits: dict[str, Any] = {"max_model_len": MAX_MODEL_LEN, "kv_memory_bytes": KV_MEMORY_BYTES, "max_sessions": 8}
    return Engine(EngineConfig(ensure_model(), Precision(**knobs), threads=sizes.threads, **limits))


def scored(engine: Engine, base: Logprobs | None) -> tuple[dict[str, Any], Logprobs]:
    """The text against the base (without one: against itself), and its log-probabilities."""
    ids = engine.tokenizer.encode(TEXT)
    found = logprobs_of(engine, ids)
    return asdict(compare(found if base is None else base, found, ids[1:])), found


def measure_knobs(sizes: Sizes, wanted: Sequence[dict[str, Any]] = KNOBS) -> Iterator[dict[str, Any]]:
    """The text at each of those settings against the base; prints a line each."""
    _, base = scored(engine_of(sizes), None)
    for settings in wanted:
        measured = {**settings, **scored(engine_of(sizes, **settings), base)[0]}
        print("  ".join(_told(key, value) for key, value in measured.items()), flush=True)
        yield measured


def measure(
    sizes: Sizes, wanted: Sequence[tuple[str, str]], failures: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """A row a case against the first one, each on an engine of its own; prints a line a case. With `failures` a case that fails (but the
    first, which the others need) is told there and left out.
    """
    base: Logprobs | None = None
    for weights, kv_cache in wanted:
        try:
            measured, found = row(weights, kv_cache, base, sizes)
        except Exception as error:  # whatever it is, it must not cost the other formats
            if base is None or failures is None:
                raise
            failures.append(f"weights {weights}, KV {kv_cache}: {type(error).__name__}: {error}")
            continue
        base = found if base is None else base
        print(
            "  ".join(_told(key, value) for key, value in measured.items() if not isinstance(value, dict)), flush=True
        )
        yield measured


def _told(key: str, value: object) -> str:
    return f"{key} {value:.5f}" if isinstance(value, float) else f"{key} {value}"


def main() -> int:
    """Prints a line a case and writes the JSON; 1 where a case failed, after the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--seeds", type=int, help="haystacks of each length for every format (default: 3 of those claimed, else 1)"
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens of the haystacks")
    parser.add_argument(
        "--only", nargs="+", help="KV dtypes and weights dtypes to compare with the base, as WEIGHTS/KV"
    )
    parser.add_argument(
        "--knobs", action="store_true", help="block sizes, heads and skipped layers instead, on the text alone"
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench/quality.json"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    if arguments.knobs:
        rows = list(measure_knobs(Sizes(arguments.threads)))
        arguments.out.with_stem("quality_knobs").write_text(json.dumps(rows, indent=2) + "\n")
        return 0
    failures: list[str] = []
    wanted = [case for case in cases() if case == BASE or not arguments.only or "/".join(case) in arguments.only]
    for measured in measure(Sizes(arguments.threads, arguments.lengths, arguments.seeds), wanted, failures):
        rows.append(measured)  # written after each, so that a run that is cut short leaves what it has
        arguments.out.write_text(json.dumps({"model": "SmolLM2-135M-Instruct", "quality": rows}, indent=2) + "\n")
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
