"""`python tests/tiers.py [TIER…]`: runs every tier of the tests, whatever became of the one before, and ends with one table.

A tier is a pytest run of its own. One whose machine lacks something is left out and says in one line what it lacks; with CI=true that is a
failure. Exit code: 0, or 1 when a tier failed. Beside the table: build/test/report.json, and build/test/TIER.xml (JUnit) of each tier.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "build" / "test"
INTERRUPTED = 130


class LacksError(Exception):
    """What this machine lacks for a tier, in one line."""


@dataclass(frozen=True)
class Tier:
    """Tests that need the same. `prepare` returns what goes into their environment, or raises LacksError."""

    name: str
    arguments: tuple[str, ...]
    prepare: Callable[[], Mapping[str, str]] = dict


@dataclass
class Outcome:
    """What became of a tier. `lacks`: why it was left out; `trouble`: what went wrong besides failed tests."""

    tier: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    lacks: str = ""
    trouble: str = ""
    failures: list[str] = field(default_factory=list)

    def is_failure(self, *, strict: bool) -> bool:
        """Whether the whole fails for it."""
        return bool(self.failed or self.trouble or (strict and self.lacks))


def one_thread_each() -> Mapping[str, str]:
    """Processes as many as the cores: the threads of numpy and torch would only take the cores from each other."""
    return {"OMP_NUM_THREADS": "1"}


def model() -> Mapping[str, str]:
    """Imports the small real model into the cache, unless it is there."""
    _said_by("error", [sys.executable, "-m", "kvroll_worker.models.smollm2"])
    return {}


def cluster() -> Mapping[str, str]:
    """Starts the local Kubernetes (or takes the one of KUBECONFIG) and gives what a shell would export for it."""
    command = [sys.executable, "-m", "kvroll_cluster"]
    _said_by("kvroll_cluster", [*command, "up"])
    exports = _said_by("kvroll_cluster", [*command, "env"])
    names = "import json, os; print(json.dumps(dict(os.environ)))"
    read = subprocess.run(
        ["sh", "-c", f'eval "$1"; exec "$2" -c {names!r}', "sh", exports, sys.executable],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, str] = json.loads(read.stdout)
    return {name: value for name, value in found.items() if os.environ.get(name) != value}


def cluster_with_model() -> Mapping[str, str]:
    """Both."""
    return {**model(), **cluster()}


# Slow tests are those that measure, wait by the clock or start processes: they have the machine for themselves. Of a matrix the fast tier
# runs one of each kind (`fast_where`), and the slow one the rest.
TIERS = (
    Tier(
        "fast",
        (
            "tests",
            "-m",
            "not e2e and not slow and not model and not fault and not dist",
            "-n",
            "logical",
            "--dist",
            "worksteal",
        ),
        one_thread_each,
    ),
    Tier("slow", ("tests", "-m", "slow and not model and not e2e and not fault and not dist")),
    Tier("model", ("tests", "-m", "model and not e2e and not fault and not dist"), model),
    Tier("dist", ("tests", "-m", "dist and not e2e and not fault")),
    Tier("local", ("tests", "-m", "e2e and local"), model),
    Tier("cluster", ("tests", "-m", "e2e and not local"), cluster_with_model),
)


def run_all(tiers: Sequence[Tier], *, run: Callable[[Tier], Outcome], strict: bool, reports: Path) -> int:
    """Runs each and returns the exit code; Ctrl-C ends the run and still tells what was found by then."""
    outcomes: list[Outcome] = []
    code = 0
    try:
        for tier in tiers:
            print(f"\n==== {tier.name} ====", flush=True)
            outcomes.append(run(tier))
            if outcomes[-1].lacks:
                print(f"left out: {outcomes[-1].lacks}", flush=True)
    except KeyboardInterrupt:
        code = INTERRUPTED
    reports.mkdir(parents=True, exist_ok=True)
    failed = [outcome.tier for outcome in outcomes if outcome.is_failure(strict=strict)]
    report = {"tiers": [asdict(outcome) for outcome in outcomes], "failed_tiers": failed}
    (reports / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"\n{table(outcomes, strict=strict)}", flush=True)
    return code or int(bool(failed))


def run_tier(tier: Tier, reports: Path = REPORTS) -> Outcome:
    """One pytest run, counted by its JUnit report."""
    started_s = time.monotonic()
    try:
        environment = {**with_bytecode(os.environ), **tier.prepare()}
    except LacksError as error:
        return Outcome(tier.name, lacks=str(error), seconds=time.monotonic() - started_s)
    reports.mkdir(parents=True, exist_ok=True)
    report = reports / f"{tier.name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *tier.arguments, f"--junit-xml={report}"]
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    return counted(tier.name, report, code, time.monotonic() - started_s)


def with_bytecode(environment: Mapping[str, str]) -> dict[str, str]:
    """Who wants no bytecode beside the sources gets it under build/: without any, every process compiles thousands of modules anew."""
    found = dict(environment)
    if found.pop("PYTHONDONTWRITEBYTECODE", ""):
        found.setdefault("PYTHONPYCACHEPREFIX", str(REPORTS / "bytecode"))
    return found


def counted(tier: str, report: Path, code: int, seconds: float) -> Outcome:
    """The outcome by pytest's exit code and JUnit report; what the two do not explain is trouble, never a pass."""
    outcome = Outcome(tier, seconds=seconds)
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        outcome.trouble = f"pytest exited with {code} and left no report"
        return outcome
    for case in cases:
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            outcome.failures.append(f"{case.get('classname')}::{case.get('name')}")
    # A test that fails and whose clean-up fails too is one that failed.
    outcome.failures = list(dict.fromkeys(outcome.failures))
    outcome.failed = len(outcome.failures)
    outcome.skipped = sum(case.find("skipped") is not None for case in cases)
    outcome.passed = len({(case.get("classname"), case.get("name")) for case in cases})
    outcome.passed -= outcome.failed + outcome.skipped
    if code != 0 and not outcome.failed:
        outcome.trouble = "no test was found" if code == 5 else f"pytest exited with {code}"
    return outcome


def table(outcomes: Sequence[Outcome], *, strict: bool) -> str:
    """The summary: a row a tier, and the names of what failed."""
    rows: list[tuple[str, ...]] = [("TIER", "PASSED", "FAILED", "SKIPPED", "SECONDS", "")]
    for outcome in outcomes:
        counts = [f"{n}" for n in (outcome.passed, outcome.failed, outcome.skipped)] if not outcome.lacks else ["-"] * 3
        note = outcome.trouble or (f"left out: {outcome.lacks}" if outcome.lacks else "")
        word = "FAILED" if outcome.is_failure(strict=strict) else ""
        rows.append((outcome.tier, *counts, f"{outcome.seconds:.0f}", ": ".join(part for part in (word, note) if part)))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in range(1, 5)), row[5]]).rstrip()
        for row in rows
    ]
    named = [f"  {outcome.tier}: {name}" for outcome in outcomes for name in outcome.failures]
    return "\n".join(lines + (["failed:", *named] if named else []))


def _said_by(name: str, command: Sequence[str]) -> str:
    """What the command printed; what it says on stderr goes on as it comes.

    Raises:
        LacksError: it failed, and why by its own word: the first line that begins with its name, or else the last.
    """
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            sys.stderr.write(line)
            said.append(line.strip())
        printed = process.stdout.read()
    if process.returncode != 0:
        own = next((line for line in said if line.startswith(f"{name}: ")), (said or [""])[-1])
        raise LacksError(own.removeprefix(f"{name}: ") or f"`{' '.join(command)}` exited with {process.returncode}")
    return printed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tiers that are named, or all."""
    by_name = {tier.name: tier for tier in TIERS}
    parser = argparse.ArgumentParser(prog="tests/tiers.py", description="Run the tests tier by tier, then one table.")
    parser.add_argument("tier", nargs="*", metavar="TIER", help=f"of: {', '.join(by_name)}")
    in_ci = os.environ.get("CI", "").lower() in ("1", "true")
    text = "a tier that is left out is a failure, as with CI=true"
    parser.add_argument("--strict", action="store_true", default=in_ci, help=text)
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.tier if name not in by_name]
    if unknown:
        parser.error(f"expected tiers of {', '.join(by_name)}, found {', '.join(unknown)}")
    return run_all([by_name[name] for name in asked.tier] or TIERS, run=run_tier, strict=asked.strict, reports=REPORTS)


if __name__ == "__main__":
    sys.exit(main())
