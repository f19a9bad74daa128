"""kubectl and helm as a user runs them: every step of the demo and the e2e tests is a command that anybody can type."""

import asyncio
import json
import os
import shutil
from typing import Any


class CommandError(RuntimeError):
    """A command failed; the message holds the command and what it printed."""


class Kube:
    """Runs kubectl and helm against the cluster of `KUBECONFIG` in one namespace."""

    def __init__(self, namespace: str, env: dict[str, str] | None = None) -> None:
        self.namespace = namespace
        self._env = {**os.environ, **(env or {})}
        for tool in ("kubectl", "helm"):
            if shutil.which(tool, path=self._env.get("PATH")) is None:
                raise CommandError(f"expected `{tool}` on PATH; run `make cluster-up`, which builds it")

    async def run(self, *command: str, stdin: str | None = None, check: bool = True) -> str:
        """Runs a command and returns its stdout.

        Raises:
            CommandError: it exited non-zero and `check` is set.
        """
        code, out, err = await self.run_raw(*command, stdin=stdin)
        if check and code:
            raise CommandError(f"`{' '.join(command)}` exited with {code}: {err.strip() or out.strip()}")
        return out

    async def run_raw(self, *command: str, stdin: str | None = None) -> tuple[int, str, str]:
        """Runs a command and returns (exit code, stdout, stderr)."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env)
        out, err = await process.communicate(stdin.encode() if stdin is not None else None)
        return process.returncode or 0, out.decode(), err.decode()

    async def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """kubectl in the namespace."""
        return await self.run("kubectl", "-n", self.namespace, *arguments, stdin=stdin, check=check)

    async def apply(self, *objects: dict[str, Any]) -> str:
        """`kubectl apply -f -` of the objects."""
        return await self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(o) for o in objects))

    async def get(self, *arguments: str) -> dict[str, Any]:
        """`kubectl get … -o json`; empty when the object is not there."""
        text = await self.kubectl("get", *arguments, "-o", "json", "--ignore-not-found")
        return dict(json.loads(text)) if text.strip() else {}

    async def wait(self, condition: str, *targets: str, timeout_seconds: int) -> None:
        """`kubectl wait --for=…`."""
        await self.kubectl("wait", f"--for={condition}", *targets, f"--timeout={timeout_seconds}s")
