"""kvroll on this machine alone: a `kvroll up` in a folder of its own, gone afterwards."""

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kvroll_cli.demo import model
from kvroll_cli.demo.backends.api import DemoApi
from kvroll_cli.demo.backends.backend import pool_of
from kvroll_cli.demo.backends.objects import BackendError, Object
from kvroll_local.up.folder import StateFolder

_KVROLL = (sys.executable, "-c", "from kvroll_cli.main import main; main()")
_START_SECONDS = 120
_END_SECONDS = 120
_LOOK_SECONDS = 0.1


class EmbeddedBackend:
    """Operator, gateway and workers as plain processes of this user, against the embedded API server."""

    name = "Embedded"
    opening = "kvroll up, in a folder of its own: API server, operator, gateway"

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._objects: DemoApi | None = None
        self._gateway_url = ""
        self._model = Path()

    @property
    def objects(self) -> DemoApi:
        """The objects of the site, once it has started."""
        if self._objects is None:
            raise RuntimeError("expected `start` to have been called, found no site")
        return self._objects

    @property
    def state(self) -> Path:
        """The site's folder."""
        if self._folder is None:
            raise RuntimeError("expected `start` to have been called, found no site")
        return self._folder / "state"

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and the other verbs."""
        return self.state / "kubeconfig"

    async def start(self) -> None:
        self._model = await model.ensure()
        self._folder = Path(tempfile.mkdtemp(prefix="kvroll-demo-"))
        with (self._folder / "up.log").open("wb") as log:
            # A session of its own: Ctrl-C is for whoever runs this, who then ends it in order.
            self._process = await asyncio.create_subprocess_exec(
                *_KVROLL, "up", "--state", str(self.state), "--port", "0",
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while not (record := StateFolder(self.state).record()) or not self.kubeconfig.exists():
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise BackendError(f"expected `kvroll up` to run, found: {self._said() or 'nothing that it said'}")
            await asyncio.sleep(_LOOK_SECONDS)
        self._gateway_url = record.gateway_url
        self._objects = DemoApi(self.kubeconfig, record.namespace)

    async def gateway_url(self) -> str:
        return self._gateway_url

    async def facts(self) -> dict[str, Any]:
        """One node: this machine, by the name that its Pods carry."""
        pods = await self.objects.list("pod")
        return {
            "kubernetes_version": await self.objects.version(),
            "nodes": sorted({str(pod["spec"].get("nodeName", "")) for pod in pods}),
        }

    def pool(self, name: str, **wanted: Any) -> Object:
        return pool_of(name, self._model.as_uri(), **wanted)

    async def stop(self) -> None:
        """Raises:
        BackendError: `kvroll up` did not end; the folder is left, and the message says how to end it.
        """
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), _END_SECONDS)
            except TimeoutError:
                raise BackendError(
                    f"expected `kvroll up` to end within {_END_SECONDS} s; `kvroll down --state {self.state}` ends it"
                ) from None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _said(self) -> str:
        assert self._folder is not None
        return (self._folder / "up.log").read_text(encoding="utf-8", errors="replace").strip()
