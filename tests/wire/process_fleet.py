"""Real processes on loopback: workers with a tiny model, a gateway before them, and what a test asks of both."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

ROOT = Path(__file__).parents[2]
_ROOMS = ("core", "gateway", "worker", "kernels", "proto", ".")


class Child:
    """One process and what it wrote; `ports` are those that its log says."""

    def __init__(self, process: Process, ready_event: str) -> None:
        self.process = process
        self.lines: list[str] = []
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._ready_event = ready_event
        self._reading = [asyncio.create_task(self._read(one)) for one in (process.stdout, process.stderr)]

    async def _read(self, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        async for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            self.lines.append(line)
            if f'"event": "{self._ready_event}"' in line and not self.ready.done():
                self.ready.set_result(json.loads(line))
        if not self.ready.done():
            self.ready.set_exception(RuntimeError("\n".join(self.lines)))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process.returncode is not None

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def kill(self) -> None:
        if not self.ended:
            self.process.kill()
        await self.process.wait()
        await asyncio.gather(*self._reading)


class Fleet:
    """An async context that ends every process it started.

    Args:
        model: the folder of the workers' model.
        home: their HOME and cache.
    """

    def __init__(self, model: Path, home: Path) -> None:
        self.workers: list[Child] = []
        self.gateway: Child | None = None
        self.http = httpx.AsyncClient(timeout=120)
        self._model = model
        self._home = home
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.http)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def start_workers(self, count: int, *flags: str, **env: str) -> None:
        """Starts so many at once, and waits until all serve."""
        command = [
            "-m",
            "tests.wire.slow_worker",
            "--model-uri",
            self._model.as_uri(),
            "--model-name",
            "tiny",
            "--admit",
        ]
        command += ["--host", "127.0.0.1", "--grpc-port", "0", "--http-port", "0", "--no-measure-device"]
        command += ["--threads", "1", "--kv-memory", "16MiB", *flags]
        started = [
            await self._start(command, "serving", {**env, "KVROLL_WORKER_ID": f"w{len(self.workers) + one}"})
            for one in range(count)
        ]
        for child in started:
            async with asyncio.timeout(120):
                await child.ready
        self.workers += started

    async def start_gateway(self, *flags: str, **env: str) -> str:
        """Starts it before the workers, or before what `flags` name; returns its URL once it knows the model."""
        workers = [] if flags else [part for child in self.workers for part in ("--worker", self.address(child))]
        command = ["-m", "kvroll_gateway", "--host", "127.0.0.1", "--port", "0", *workers, *flags]
        self.gateway = await self._start(command, "gateway_serving", env)
        async with asyncio.timeout(60):
            self.http.base_url = httpx.URL(f"http://127.0.0.1:{(await self.gateway.ready)['port']}")
        await self.until(lambda page: page.get("kvroll_gateway_workers", 0) >= 2)
        return str(self.http.base_url)

    @staticmethod
    def address(worker: Child) -> str:
        return f"127.0.0.1:{worker.ready.result()['grpc_port']}"

    async def figures(self, worker: Child | None = None) -> dict[str, float]:
        """The series of the gateway's page, or of a worker's, with their labels."""
        url = f"http://127.0.0.1:{worker.ready.result()['http_port']}/metrics" if worker else "/metrics"
        page = (await self.http.get(url, timeout=10)).text
        rows = [line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in rows}

    async def until(
        self, condition: Callable[[dict[str, float]], object], worker: Child | None = None, seconds: float = 60.0
    ) -> float:
        """Asks for the figures until they fulfil the condition; returns the seconds that it took."""
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(seconds):
            while not condition(await self.figures(worker)):
                await asyncio.sleep(0.05)
        return asyncio.get_running_loop().time() - began

    async def busy_worker(self) -> Child:
        """The worker that holds the one session there is."""
        async with asyncio.timeout(30):
            while True:
                for child in self.workers:
                    running = [
                        v for k, v in (await self.figures(child)).items() if k.startswith("vllm:num_requests_running")
                    ]
                    if sum(running):
                        return child
                await asyncio.sleep(0.05)

    async def _start(self, arguments: list[str], ready_event: str, env: dict[str, str]) -> Child:
        path = os.pathsep.join(str(ROOT / room) for room in _ROOMS)
        plain = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": path,
            "HOME": str(self._home),
            "XDG_CACHE_HOME": str(self._home),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env={**plain, **env}, stdout=PIPE, stderr=PIPE, limit=1 << 22, cwd=ROOT
        )
        child = Child(process, ready_event)
        self._stack.push_async_callback(child.kill)
        return child
