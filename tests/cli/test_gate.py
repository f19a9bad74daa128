"""`kvroll gate` against servers that speak OpenAI's completions, well or badly."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from kvroll_cli.commands.gate.server import ScoringServer
from kvroll_core.gate import Ask, Evidence
from tests.cli.openai_words import Words, serving

Kvroll = Callable[..., Result]
BAR = ("--bar", "top1Agreement>=0.97")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    lines: list[dict[str, Any]] = [{"text": f"text {number} of {'some words ' * 15}"} for number in range(12)]
    lines += [
        {"prompt": "one two", "expected": " three"},
        {"prompt": "up and", "choices": [" down", " so on"], "answer": 0},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def judged(kvroll: Kvroll, base: Words, found: Words, *flags: str) -> tuple[Result, str, str]:
    with serving(base) as old, serving(found) as new:
        return kvroll("gate", "--baseline", old, "--candidate", f"{new}/v1/", *flags), old, new


def test_a_candidate_that_agrees_passes_with_evidence(kvroll: Kvroll, dataset: Path, tmp_path: Path) -> None:
    report = tmp_path / "gate.json"
    flags = (
        *BAR,
        "--bar",
        "taskScore>=1",
        "--bar",
        "needleRecall>=1",
        "--dataset",
        str(dataset),
        "-o",
        "json",
        "--report",
        str(report),
    )
    old_server = Words()
    done, old, new = judged(kvroll, old_server, Words(), *flags, "--api-key", "secret", "--top-k", "5")
    assert done.exit_code == 0, done.output
    evidence = Evidence.from_json(json.loads(done.stdout))
    assert evidence == Evidence.from_json(json.loads(report.read_text()))
    assert evidence.verdict == "Pass"
    assert (evidence.baseline, evidence.candidate) == (f"tiny at {old}", f"tiny at {new}")
    assert old_server.keys == {"Bearer secret"}
    assert {body["logprobs"] for body in old_server.bodies} == {5, 1}
    assert all((body["max_tokens"], body["echo"]) == (0, True) for body in old_server.bodies)


def test_one_that_does_not_fails_and_the_page_says_why(kvroll: Kvroll, dataset: Path, tmp_path: Path) -> None:
    report = tmp_path / "gate.md"
    done, _, _ = judged(kvroll, Words(), Words(flips=0.4), *BAR, "--dataset", str(dataset), "--report", str(report))
    assert done.exit_code == 1, done.output
    assert "gate: Fail: top1Agreement >= 0.97: 0." in done.stdout
    assert report.read_text().startswith("# Gate: Fail")


def test_one_that_is_too_near_is_inconclusive(kvroll: Kvroll, dataset: Path) -> None:
    flags = (*BAR, "--dataset", str(dataset), "--max-samples", "8", "-o", "yaml")
    done, _, _ = judged(kvroll, Words(), Words(flips=0.02), *flags)
    assert done.exit_code == 3, done.output
    assert yaml.safe_load(done.stdout)["verdict"] == "Inconclusive"


def test_a_token_of_the_servers_own_before_the_text_changes_nothing() -> None:
    for words in (Words(), Words(first="<s>")):
        with serving(words) as url:
            server = ScoringServer(url)
            found = server.answer(Ask("a", "one two", (" three four", "three"), 3))
            server.close()
        assert [[token.token for token in score.tokens] for score in found.scores] == [
            [" three", " four"],
            [" twothree"],
        ]
        assert all(score.is_greedy for score in found.scores)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (Words(logprobs=False), "expected completions with the logprobs of an echoed prompt"),
        (Words(status=400), "400: .*logprobs of an echo are not supported.*`echo`"),
        (Words(models=("a", "b")), "expected one model at .*, found a, b; name it with --model"),
        (Words(models=()), "found none; name it with --model"),
    ],
)
def test_a_server_that_cannot_is_refused_by_what_it_lacks(
    kvroll: Kvroll, dataset: Path, capfd: pytest.CaptureFixture[str], words: Words, said: str
) -> None:
    done, _, _ = judged(kvroll, Words(), words, *BAR, "--dataset", str(dataset))
    assert done.exit_code == 1
    assert re.search(said, capfd.readouterr().err)


def test_nobody_there_is_said_so(kvroll: Kvroll, capfd: pytest.CaptureFixture[str]) -> None:
    done = kvroll("gate", "--baseline", "http://127.0.0.1:9", "--candidate", "http://127.0.0.1:9", *BAR)
    assert done.exit_code == 1
    assert "expected an OpenAI server at http://127.0.0.1:9" in capfd.readouterr().err


def test_a_null_among_the_numbers_fails_the_candidate(kvroll: Kvroll, dataset: Path) -> None:
    done, _, _ = judged(kvroll, Words(), replace(Words(), null_at=3), *BAR, "--dataset", str(dataset))
    assert done.exit_code == 1, done.output
    assert "not finite" in done.stdout


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "--bar"),
        (("--bar", "top1>=1"), "top1Agreement"),
        ((*BAR, *BAR), "expected one min"),
        ((*BAR, "--alpha", "0.9"), "alpha"),
        ((*BAR, "--max-samples", "2"), "min_samples"),
    ],
)
def test_wrong_usage_leaves_with_2(kvroll: Kvroll, flags: tuple[str, ...], said: str) -> None:
    done = kvroll("gate", "--baseline", "http://a", "--candidate", "http://b", *flags)
    assert done.exit_code == 2
    assert said in done.output


def test_a_bad_line_of_the_dataset_is_wrong_usage(kvroll: Kvroll, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "good"}\n{"txt": "bad"}\n')
    done = kvroll("gate", "--baseline", "http://a", "--candidate", "http://b", *BAR, "--dataset", str(path))
    assert done.exit_code == 2
    assert "line 2" in done.output
