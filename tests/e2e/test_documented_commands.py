"""The documents' own `kubectl` and `kubectl kvroll` commands, run against `kvroll up` with the pool that they name."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvroll_cli.demo.backends.backend import Backend
from kvroll_cli.demo.backends.objects import is_complete, until
from tests.docs.written import Written, commands_in, documents, notes

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.timeout(600),
    pytest.mark.only_on(
        "Embedded", reason="what the API servers answer alike is held by their common table of requests"
    ),
]
KUBECTL = shutil.which("kubectl")
RUN = ("get", "patch", "scale", "wait", "kvroll")
LOOKS = ("status", "history")
"""Verbs of ours that answer of a pool at rest; the others want a roll."""
STAYS_OPEN = {"-w", "--watch"}


def runnable(command: Written) -> list[str] | None:
    """The arguments for kubectl; None of what needs more than a pool at rest."""
    words = [word.replace("<name>", "chat").replace("kvpool/NAME", "kvpool/chat") for word in command.words[1:]]
    while words[:1] in (["-n"], ["--namespace"]):
        words = words[2:]
    if (
        not words
        or words[0] not in RUN
        or len(words) == 1
        or any("<" in word or word in ("…", "...") for word in words)
    ):
        return None
    words = [word for word in words if word not in STAYS_OPEN]
    if words[0] == "kvroll":
        return words if words[1] in LOOKS else None
    ours = any(word.startswith(("kvpool", "kvp/", "kvp ")) or word == "kvp" for word in words[1:])
    return words if ours else None


def test_they_are_answered(backend: Backend, kvroll_environment: dict[str, str]) -> None:
    if KUBECTL is None:
        pytest.skip("kubectl is not on PATH; tests/docs holds the commands against the definitions' names")
    asyncio.run(pool_at_rest(backend))
    programs = Path(sys.executable).parent  # where `kubectl-kvroll` is
    environment = {**kvroll_environment, "PATH": f"{programs}:{kvroll_environment['PATH']}"}
    found = [command for page in documents() for command in commands_in(page)] + notes()
    asked = [runnable(command) for command in found if command.words[0] == "kubectl"]
    commands = {tuple(words) for words in asked if words}
    assert len(commands) >= 6, commands
    refused = []
    for words in sorted(commands, key=lambda words: (words[0] == "patch", words)):  # what changes the pool comes last
        done = subprocess.run(
            [KUBECTL, *words], env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            refused.append(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
    assert not refused, "\n".join(refused)


async def pool_at_rest(backend: Backend) -> None:
    await backend.objects.apply(backend.pool("chat", replicas=0, model_name="chat"))
    await until(backend.objects, "kvpool", "chat", is_complete, timeout_seconds=120, what="complete")
