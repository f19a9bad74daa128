"""Whether the gate tells good from bad on the small real model: `make bench PART=gate` writes build/bench/gate.json.

`verdicts` [] {weights, kv, verdict, expected, follows, samples, top1_agreement, needle_recall, …}: every format against weights bf16 and
KV bf16 at the bars below; `expected` is what the measured table, docs/quality.json, says of the same bars. `false_reject_rate`: the old
engine against another one of the same precision that batches otherwise, over so many seeds (orders, needles). `broken_accumulation`
{runs, rejected}: attention with sums of six bits, put in on purpose. A text that one engine scored is not scored again by it.
"""

import argparse
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import gate_errors

from kvroll_bench.narrow_sums import NarrowNative
from kvroll_core.gate import Answer, Arm, Ask, Bar, Evidence, GateVerdict, Trial, TrialPolicy, bundled
from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS
from kvroll_core.precision.precision import Precision
from kvroll_kernels import dispatch
from kvroll_worker.engine.engine import Engine, EngineConfig
from kvroll_worker.evaluate.arm import EngineArm
from kvroll_worker.evaluate.metrics import NotComparableError
from kvroll_worker.models.smollm2 import ensure_model

BASE = ("bf16", "bf16")
BARS = (Bar.parse("top1Agreement>=0.97"), Bar.parse("needleRecall>=0.95"))
QUALITY = Path("docs/quality.json")
MAX_MODEL_LEN = 768
KV_MEMORY_BYTES = 96 * 2**20
TOGETHER = 3
NARROW_BITS = 6
Report = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much is run; the haystack of a repeated run is short, because each seed has its own."""

    threads: int
    old_against_old: int = 50
    broken: int = 10
    repeated: TrialPolicy = field(default_factory=lambda: TrialPolicy(needle_words=(80,)))


class Answers(Protocol):
    """An `EngineArm`, or what a test has for one."""

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """One answer an ask."""


class CachedArm:
    """An arm that is asked each question once."""

    def __init__(self, arm: Answers) -> None:
        self._arm = arm
        self._known: dict[tuple[str | None, tuple[str, ...], int], Answer] = {}

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """One answer an ask, from memory where there is one."""
        new = list({_key(ask): ask for ask in asks if _key(ask) not in self._known}.values())
        for ask, answer in zip(new, self._arm.answer(new), strict=True):
            self._known[_key(ask)] = answer
        return [self._known[_key(ask)] for ask in asks]


@dataclass(frozen=True)
class Arms:
    """The base scores one text at a time; the control is the same engine with several in its batch."""

    base: CachedArm
    control: CachedArm

    @classmethod
    def load(cls, sizes: Sizes) -> "Arms":
        """One engine."""
        engine = engine_of(BASE, sizes)
        return cls(CachedArm(EngineArm(engine)), CachedArm(EngineArm(engine, TOGETHER)))

    def judge(self, candidate: CachedArm, policy: TrialPolicy, seed: int) -> Evidence:
        """A whole trial."""
        trial = Trial(bundled(), BARS, policy, seed)
        arms = {Arm.BASELINE: self.base, Arm.CONTROL: self.control, Arm.CANDIDATE: candidate}
        while (batch := trial.ask()) is not None:
            try:
                trial.take(batch.id, arms[batch.arm].answer(batch.asks))
            except NotComparableError as error:
                trial.fault(batch.arm, str(error))
        return trial.evidence()


def engine_of(case: tuple[str, str], sizes: Sizes) -> Engine:
    """An engine of that precision; it shares the prefixes of a haystack's questions."""
    limits: dict[str, Any] = {"max_model_len": MAX_MODEL_LEN, "kv_memory_bytes": KV_MEMORY_BYTES, "max_sessions": 8}
    return Engine(EngineConfig(ensure_model(), Precision(*case), **limits, threads=sizes.threads))


def cases() -> list[tuple[str, str]]:
    """(weights, KV): every built format beside the base, of the one table."""
    kv = [("bf16", name) for name, entry in KV_FORMATS.items() if entry.built and name != "bf16"]
    weights = [(name, "bf16") for name, entry in WEIGHT_FORMATS.items() if entry.built and name != "bf16"]
    return kv + weights


def expected(case: tuple[str, str], table: Sequence[Report]) -> GateVerdict:
    """What the table of measured quality says of the same bars."""
    by_case = {(row["weights"], row["kv"]): row for row in table}
    found, base = by_case[case], by_case[BASE]
    values = found["top1_agreement"], found["needle_recall"] / base["needle_recall"]
    met = all(bar.met_by(value) for bar, value in zip(BARS, values, strict=True))
    return GateVerdict.PASS if met else GateVerdict.FAIL


def verdicts(arms: Arms, sizes: Sizes) -> Iterator[Report]:
    """A row a format."""
    table = json.loads(QUALITY.read_text())["quality"]
    for case in cases():
        began = cpu_seconds()
        evidence = arms.judge(CachedArm(EngineArm(engine_of(case, sizes))), TrialPolicy(), 0)
        wanted = expected(case, table)
        row = {"weights": case[0], "kv": case[1], "expected": wanted.value, **figures(evidence)}
        row |= {"follows": evidence.verdict is wanted, "cpu_seconds": round(cpu_seconds() - began, 1)}
        print("  ".join(f"{key} {value}" for key, value in row.items() if key != "reason"), flush=True)
        yield row


def figures(evidence: Evidence) -> Report:
    """The verdict and the figures of each bar."""
    out: Report = {"verdict": evidence.verdict.value, "reason": evidence.reason, "samples": evidence.samples}
    for one in evidence.metrics:
        if one.bar is not None:
            name = {"top1Agreement": "top1_agreement", "needleRecall": "needle_recall"}[one.name]
            out |= {name: one.value, f"{name}_samples": one.samples, f"{name}_control": one.control}
    return out


def old_against_old(arms: Arms, sizes: Sizes) -> Report:
    """Runs of the base against another engine of the same precision; whatever is no Pass is a false rejection."""
    other = CachedArm(EngineArm(engine_of(BASE, sizes), TOGETHER))
    found = [arms.judge(other, sizes.repeated, seed) for seed in range(1, sizes.old_against_old + 1)]
    rejected = sum(one.verdict is not GateVerdict.PASS for one in found)
    print(f"old against old: {rejected} of {len(found)} rejected", flush=True)
    return {
        "false_reject_rate": rejected / len(found),
        "old_against_old": {"runs": len(found), "rejected": rejected, "samples": [one.samples for one in found]},
    }


def broken_accumulation(arms: Arms, sizes: Sizes) -> Report:
    """Runs against an engine whose attention loses the low bits of its sums."""
    with mock.patch.object(dispatch, "load", return_value=NarrowNative(NARROW_BITS)):
        engine = engine_of(BASE, sizes)
    broken = CachedArm(EngineArm(engine))
    found = [arms.judge(broken, sizes.repeated, seed) for seed in range(1, sizes.broken + 1)]
    rejected = sum(one.verdict is GateVerdict.FAIL for one in found)
    print(f"broken accumulation: {rejected} of {len(found)} rejected", flush=True)
    report = {"runs": len(found), "rejected": rejected, "samples": [one.samples for one in found]}
    return {
        "broken_accumulation": {**report, "sum_bits": NARROW_BITS, "reasons": sorted({one.reason for one in found})}
    }


def cpu_seconds() -> float:
    """Of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _key(ask: Ask) -> tuple[str | None, tuple[str, ...], int]:
    return ask.prompt, ask.continuations, ask.top_k


def main() -> int:
    """Prints a line a result and writes the JSON after each, so that a run that is cut short leaves what it has; 1 where the judge errs
    more often than it promises.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=Sizes.old_against_old, help="of old against old")
    parser.add_argument("--broken", type=int, default=Sizes.broken, help="runs against broken sums")
    parser.add_argument("--out", type=Path, default=Path("build/bench/gate.json"))
    arguments = parser.parse_args()
    sizes = replace(Sizes(arguments.threads), old_against_old=arguments.runs, broken=arguments.broken)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    report: Report = {"model": "SmolLM2-135M-Instruct", "bars": [str(bar) for bar in BARS], "verdicts": []}
    arms = Arms.load(sizes)

    def write() -> None:
        arguments.out.write_text(json.dumps({**report, "cpu_seconds": round(cpu_seconds(), 1)}, indent=2) + "\n")

    for row in verdicts(arms, sizes):
        report["verdicts"].append(row)
        write()
    report["error_rates"] = gate_errors.error_rates(gate_errors.TRIALS, sizes.threads)
    write()
    repeated: tuple[Callable[[Arms, Sizes], Report], ...] = (broken_accumulation, old_against_old)
    for part in repeated:
        report |= part(arms, sizes)
        write()
    for fault in gate_errors.faults(report["error_rates"]):
        print(f"fault: {fault}", file=sys.stderr)
    return int(bool(gate_errors.faults(report["error_rates"])))


if __name__ == "__main__":
    sys.exit(main())
