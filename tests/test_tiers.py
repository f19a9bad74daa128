"""The runner of the tiers: none keeps another from running, none passes by silence, and the table says what happened."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import tiers
from tests.tiers import LacksError, Outcome, Tier, run_all, run_tier, table

TESTS = """
import os, pytest
def test_passes(): assert os.environ["KVROLL_TIER_TEST"] == "given"
def test_fails(): assert False
@pytest.mark.skip(reason="because")
def test_is_left_out(): pass
@pytest.fixture
def broken():
    yield
    raise RuntimeError
def test_whose_end_fails(broken): pass
def test_that_fails_and_whose_end_fails(broken): assert False
"""


def tier_of(path: Path, text: str, *arguments: str) -> Tier:
    file = path / "test_some.py"
    file.write_text(text)
    plain = ("-c", os.devnull, "--rootdir", str(path), "-p", "no:cacheprovider", *arguments)
    return Tier("some", (str(file), *plain), lambda: {"KVROLL_TIER_TEST": "given"})


def lacking() -> Mapping[str, str]:
    raise LacksError("expected root, found another user")


@pytest.mark.slow
def test_a_run_is_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = run_tier(tier_of(tmp_path, TESTS), reports=tmp_path / "reports")
    assert (found.passed, found.failed, found.skipped, found.lacks, found.trouble) == (1, 3, 1, "", "")
    assert [name.partition("::")[2] for name in found.failures] == [
        "test_fails", "test_whose_end_fails", "test_that_fails_and_whose_end_fails"
    ]  # fmt: skip
    assert found.seconds > 0


@pytest.mark.parametrize(
    ("text", "arguments", "trouble"),
    [
        ("", (), "no test was found"),
        ("import os\ndef test_ends_all(): os._exit(7)", (), "pytest exited with 7 and left no report"),
        ("def test_passes(): pass", ("--no-such-option",), "pytest exited with 4 and left no report"),
    ],
)
@pytest.mark.slow
def test_what_says_nothing_is_no_pass(tmp_path: Path, text: str, arguments: tuple[str, ...], trouble: str) -> None:
    found = run_tier(tier_of(tmp_path, text, *arguments), reports=tmp_path)
    assert (found.passed, found.trouble) == (0, trouble)
    assert found.is_failure(strict=False)


@pytest.mark.slow
def test_an_old_report_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    tier = tier_of(tmp_path, "def test_passes(): pass")
    assert run_tier(tier, reports=tmp_path).passed == 1
    broken = tier_of(tmp_path, "import os\nos._exit(0)")
    assert run_tier(broken, reports=tmp_path).trouble == "pytest exited with 0 and left no report"


@pytest.mark.slow
def test_a_collection_error_is_a_failure(tmp_path: Path) -> None:
    found = run_tier(tier_of(tmp_path, "import no_such_module"), reports=tmp_path)
    assert found.failed == 1
    assert found.is_failure(strict=False)


def test_a_failed_tier_keeps_no_other_from_running(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = []

    def run(tier: Tier) -> Outcome:
        ran.append(tier.name)
        return Outcome(tier.name, passed=2, failed=tier.name == "b", failures=["x::y"] if tier.name == "b" else [])

    names = ("a", "b", "c")
    assert run_all([Tier(n, ()) for n in names], run=run, strict=False, reports=tmp_path) == 1
    assert ran == list(names)
    assert json.loads((tmp_path / "report.json").read_text())["failed_tiers"] == ["b"]
    assert "failed:\n  b: x::y" in capfd.readouterr().out
    assert run_all([Tier("a", ())], run=run, strict=False, reports=tmp_path) == 0


@pytest.mark.parametrize(("strict", "code"), [(False, 0), (True, 1)])
def test_what_a_machine_lacks_is_said_and_fails_in_ci(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], strict: bool, code: int
) -> None:
    assert run_all([Tier("cluster", (), lacking)], run=run_tier, strict=strict, reports=tmp_path) == code
    assert "left out: expected root, found another user" in capfd.readouterr().out.splitlines()[-1]


def test_an_interrupted_run_tells_what_it_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def run(tier: Tier) -> Outcome:
        if tier.name == "b":
            raise KeyboardInterrupt
        return Outcome(tier.name, passed=7)

    assert run_all([Tier(n, ()) for n in "abc"], run=run, strict=False, reports=tmp_path) == tiers.INTERRUPTED
    rows = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("a ")]
    assert rows == [["a", "7", "0", "0", "0"]]


def test_the_table_is_aligned() -> None:
    told = [Outcome("fast", passed=1204, seconds=131.6), Outcome("cluster", lacks="expected `go`, found none")]
    assert table(told, strict=False).splitlines() == [
        "TIER     PASSED  FAILED  SKIPPED  SECONDS",
        "fast       1204       0        0      132",
        "cluster       -       -        -        0  left out: expected `go`, found none",
    ]


def test_a_model_or_a_cluster_that_cannot_be_had_is_lacking() -> None:
    said = "import sys; print('note', file=sys.stderr); sys.exit('kvroll_cluster: expected root; run sudo\\n more')"
    with pytest.raises(LacksError, match=r"^expected root; run sudo$"):
        tiers._said_by("kvroll_cluster", [sys.executable, "-c", said])


def test_whoever_wants_no_bytecode_beside_the_sources_gets_it_elsewhere() -> None:
    plain = {"PATH": "/bin"}
    assert tiers.with_bytecode(plain) == plain
    kept = tiers.with_bytecode({**plain, "PYTHONDONTWRITEBYTECODE": "1"})
    assert kept == {**plain, "PYTHONPYCACHEPREFIX": str(tiers.REPORTS / "bytecode")}
    own = {**plain, "PYTHONPYCACHEPREFIX": "/mine"}
    assert tiers.with_bytecode({**own, "PYTHONDONTWRITEBYTECODE": "1"}) == own


def test_every_test_is_in_exactly_one_tier() -> None:
    """By the markers: a test of any mix of them is in one tier, but fault suites, which `make test-faults` runs."""
    marks = ("e2e", "local", "slow", "model", "fault", "dist")
    for number in range(2 ** len(marks)):
        values = {mark: bool(number >> n & 1) for n, mark in enumerate(marks)}
        chosen = [t.name for t in tiers.TIERS if eval(t.arguments[t.arguments.index("-m") + 1], {}, values)]
        assert len(chosen) == (0 if values["fault"] and not values["e2e"] else 1), values
