"""What holds for every verb: the list, programs can read it, completion, exit codes."""

import json
from collections.abc import Callable
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from kvroll_cli import main

ROOT = Path(__file__).parents[2]
STAY_OPEN = {"serve", "dashboard", "up"}
"""They end when they are told to, and print an address."""
WRITES_A_FILE = {"demo"}
"""What is for programs is a report; what is printed is to be watched."""


def verbs() -> dict[str, Any]:
    return {str(verb.name): verb.loaded() for verb in main.VERBS}


def test_every_verb_is_in_the_docs() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    missing = [name for name in verbs() if f"`{name}" not in text and name != "version"]
    assert missing == []


def test_every_verb_that_ends_by_itself_prints_for_programs_and_says_what_it_does() -> None:
    for name, command in verbs().items():
        options = {flag for parameter in command.params for flag in parameter.opts}
        assert ("--output" in options) == (name not in STAY_OPEN | WRITES_A_FILE), name
        assert command.help, name


def test_one_program_under_both_names() -> None:
    scripts = {e.name: e.value for e in entry_points(group="console_scripts") if e.value.startswith("kvroll_cli")}
    assert scripts["kvroll"] == scripts["kubectl-kvroll"] == "kvroll_cli.main:main"


@pytest.mark.parametrize(("flag", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_version(kvroll: Callable[..., Result], flag: str, read: Callable[[str], Any]) -> None:
    assert kvroll("version").stdout == f"{version('kvroll')}\n"
    assert read(kvroll("version", "-o", flag).stdout) == {"version": version("kvroll")}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_verbs_and_choices(shell: str) -> None:
    def complete(line: str) -> str:
        environment = {
            "_KVROLL_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        return CliRunner().invoke(main.app, prog_name="kvroll", env=environment).stdout

    assert "rollback" in complete("kvroll ro")
    assert "yaml" in complete("kvroll status -o ya")
