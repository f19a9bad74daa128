"""kubectl and helm as a user runs them: every step of the demo and the e2e tests on a cluster is a command that anybody can type."""

import asyncio
import json
import os
import shutil
from typing import Any

from kvroll_cli.demo.backends.objects import BackendError, Object


class Kubectl:
    """The objects of one namespace of the cluster of `KUBECONFIG`, by kubectl."""

    look_seconds = 2.0  # a kubectl a second would be a load of its own on two cores

    def __init__(self, namespace: str, env: dict[str, str] | None = None) -> None:
        self.namespace = namespace
        self._env = {**os.environ, **(env or {})}
        for tool in ("kubectl", "helm"):
            if shutil.which(tool, path=self._env.get("PATH")) is None:
                raise BackendError(f"expected `{tool}` on PATH, found none; `make cluster-up` builds it")

    async def run(self, *command: str, stdin: str | None = None, check: bool = True) -> str:
        """Runs a command and returns its stdout.

        Raises:
            BackendError: it exited non-zero and `check` is set.
        """
        code, out, err = await self.run_raw(*command, stdin=stdin)
        if check and code:
            raise BackendError(f"`{' '.join(command)}` exited with {code}: {err.strip() or out.strip()}")
        return out

    async def run_raw(self, *command: str, stdin: str | None = None) -> tuple[int, str, str]:
        """Runs a command and returns (exit code, stdout, stderr)."""
        pipe = asyncio.subprocess.PIPE
        # A session of its own: Ctrl-C is for whoever runs this, who then cleans up with the same commands.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env, start_new_session=True
        )
        try:
            out, err = await process.communicate(stdin.encode() if stdin is not None else None)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        return process.returncode or 0, out.decode(), err.decode()

    async def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """kubectl in the namespace."""
        return await self.run("kubectl", "-n", self.namespace, *arguments, stdin=stdin, check=check)

    async def apply(self, *objects: Object) -> None:
        await self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(o) for o in objects))

    async def get(self, kind: str, name: str) -> Object:
        return await self._json("get", kind, name)

    async def list(self, kind: str, selector: str = "") -> list[Object]:
        return list((await self._json("get", kind, *(("-l", selector) if selector else ()))).get("items", ()))

    async def patch(self, kind: str, name: str, change: Object) -> None:
        await self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))

    async def scale(self, kind: str, name: str, replicas: int) -> None:
        await self.kubectl("scale", f"{kind}/{name}", f"--replicas={replicas}")

    async def delete(self, kind: str, name: str, timeout_seconds: float) -> None:
        await self.kubectl("delete", kind, name, "--ignore-not-found", f"--timeout={timeout_seconds:.0f}s")

    async def _json(self, *arguments: str) -> dict[str, Any]:
        text = await self.kubectl(*arguments, "-o", "json", "--ignore-not-found")
        return dict(json.loads(text)) if text.strip() else {}
