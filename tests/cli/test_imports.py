"""What a verb imports before it works: `--help`, Tab and `version` wait for it. Modules are counted, not seconds."""

import json
import os
import subprocess
import sys

import pytest

from kvroll_cli.main import VERBS

# Each of these costs more than the whole of `kvroll version`.
HEAVY = {
    "aiohttp", "google.protobuf", "grpc", "httpx", "importlib.metadata", "kubernetes", "numpy", "matplotlib", "plotille",
    "prometheus_client", "pydantic", "requests", "starlette", "structlog", "torch", "urllib3", "uvicorn", "yaml",
}  # fmt: skip
RUN = """
import json, sys
from kvroll_cli.main import main
sys.argv = ["kvroll", *{arguments}]
try:
    main()
except SystemExit as left:
    print("\\n" + json.dumps([left.code or 0, sorted(sys.modules)]))
"""


def imported(*arguments: str, **environment: str) -> set[str]:
    """The modules that a run of the command line had imported when it left, without a failure, in a process of its own."""
    command = [sys.executable, "-c", RUN.format(arguments=arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)
    assert done.returncode == 0, done.stderr
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stdout + done.stderr
    return set(modules)


def test_the_probe_sees_what_is_imported() -> None:
    assert {"kvroll_cli.main", "typer", "kvroll_cli.commands.version", "json"} <= imported("version")


@pytest.mark.parametrize("arguments", [("version",), ("--help",), ("version", "-o", "json")], ids=" ".join)
def test_what_asks_nothing_of_a_verb_imports_no_other_verb(arguments: tuple[str, ...]) -> None:
    modules = imported(*arguments)
    assert not modules & (HEAVY | {"rich", "asyncio"})
    others = {verb.place.partition(":")[0] for verb in VERBS if verb.name != arguments[0]}
    assert not modules & others


@pytest.mark.parametrize("verb", sorted(str(verb.name) for verb in VERBS))
@pytest.mark.fast_where(verb=("serve", "status"))
def test_the_help_of_a_verb_imports_nothing_that_does_its_work(verb: str) -> None:
    assert not imported(verb, "--help") & HEAVY


@pytest.mark.parametrize("line", ["kvroll ro", "kvroll status --out", "kvroll wall -o js"])
def test_tab_imports_nothing_that_does_the_work(line: str) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert not imported(_KVROLL_COMPLETE="complete_bash", **words) & HEAVY
