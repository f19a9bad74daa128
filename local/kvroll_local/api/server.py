"""The server: store, application and socket as one thing with a start and an end."""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import uvicorn

from kvroll_local.api.access import Access
from kvroll_local.api.http.app import application
from kvroll_local.api.kinds.catalog import Catalog
from kvroll_local.api.objects.change import Request
from kvroll_local.api.objects.namespaces import KEPT
from kvroll_local.api.objects.objects import StoredObjects
from kvroll_local.api.objects.refused import Json, Refused
from kvroll_local.api.store.store import Store

_SWEEP_SECONDS = 60.0


class ApiServer:
    """The embedded API server over one state folder, in the caller's event loop.

    Opening it raises `StoreInUse` where another process serves the folder, and `CrdUnusable` or `RuleUnusable` for a CRD that it
    cannot enforce.
    """

    def __init__(
        self, state: Path, crds: Iterable[Json], access: Access, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.state, self.access = state, access
        self._host, self._port = host, port
        self.store = Store(state / "api.db")
        try:
            self.objects = StoredObjects(self.store, Catalog(crds))
        except BaseException:
            self.store.close()
            raise
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Known once it has started."""
        return f"https://{self._host}:{self._port}"

    async def start(self) -> None:
        """Begins to serve. Raises OSError where the port is taken."""
        self._found_namespaces()
        self.objects.sweep()  # a kill may have come between an owner's delete and its dependents'
        door = socket.create_server((self._host, self._port))
        self._port = door.getsockname()[1]
        config = uvicorn.Config(
            application(self.objects, self.state, self.access.token),
            log_config=None,
            access_log=False,
            lifespan="off",
            ssl_certfile=self.access.certificate,
            ssl_keyfile=self.access.key,
            timeout_graceful_shutdown=1,  # watches never end by themselves
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[door]))
        self._sweeping = asyncio.create_task(self._sweep())
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError("the API server ended before it served")
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Ends it and closes the store."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await self._serving
        self.store.close()

    async def __aenter__(self) -> "ApiServer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.objects.sweep()

    def _found_namespaces(self) -> None:
        kind = self.objects.catalog.find("", "v1", "namespaces")
        assert kind is not None
        for name in KEPT:
            with contextlib.suppress(Refused):
                self.objects.create(kind, "", {"metadata": {"name": name}}, Request())


class _Server(uvicorn.Server):
    """Signals are the caller's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
