"""One worker behind a gateway, as `kvroll serve` makes them, and looks at its metrics."""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from kvroll_bench.wall_load import MAX_MODEL_LEN, MAX_SESSIONS, POOL_PAGES, STEPS, Client
from kvroll_cli.engines.scrape import read_sample
from kvroll_core.precision.formats import find_kv_format
from kvroll_core.wall import Sample
from kvroll_worker.models.spec import load_spec

MODEL = "smollm2"
WEIGHTS, KV_CACHE = "fp32", "bf16"
"""A small model has little to read: its widest weights make the step wait for memory."""
THREADS = 1
"""The engine's: the gateway and the client have the other CPUs, so no step waits for one."""
EVERY_SECONDS = 0.5
START_SECONDS = 120.0
READY_SECONDS = 150.0


@dataclass(frozen=True)
class Worker:
    """A worker that serves: where its metrics are, and who asks it."""

    metrics_url: str
    client: Client
    http: httpx.AsyncClient

    async def sample(self) -> Sample:
        """Its metrics now."""
        answer = await self.http.get(self.metrics_url)
        return read_sample(answer.text, time.monotonic())

    async def until(self, is_there: Callable[[Sample, Sample], bool], what: str) -> None:
        """Looks until `is_there(first, newest)`.

        Raises:
            TimeoutError: it never was; says what was waited for.
        """
        first = await self.sample()
        deadline = time.monotonic() + READY_SECONDS
        while not is_there(first, await self.sample()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"expected {what} within {READY_SECONDS:.0f} s, found {self.metrics_url} without")
            await asyncio.sleep(EVERY_SECONDS)

    async def look(self, seconds: float, steps: int) -> list[Sample]:
        """Samples of a window of that length that has so many steps; on busy CPUs it is longer, but not without end."""
        samples = [await self.sample()]
        latest = samples[0].at + max(40.0, steps * 0.5)
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            samples.append(await self.sample())
            grown = (samples[-1].total(STEPS) or 0.0) - (samples[0].total(STEPS) or 0.0)
            if samples[-1].at >= latest or (samples[-1].at - samples[0].at >= seconds and grown >= steps):
                return samples


@asynccontextmanager
async def serving(folder: Path, weights: str = WEIGHTS, kv_cache: str = KV_CACHE) -> AsyncIterator[Worker]:
    """A worker of that precision whose KV pool has the same bytes at every precision: `POOL_PAGES` of `KV_CACHE`.

    Raises:
        RuntimeError: it ended, or did not serve in time.
    """
    port, metrics = _free_port(), _free_port()
    shape = load_spec(folder).shape
    sizes = {"layers": shape.layers, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
    page = find_kv_format(KV_CACHE).page_bytes(**sizes)
    flags = ["--port", str(port), "--metrics-port", str(metrics), "--model-name", MODEL, "--weights", weights]
    flags += ["--kv-cache", kv_cache, "--kv-memory", str((POOL_PAGES + 1) * page), "--threads", str(THREADS)]
    flags += ["--max-model-len", str(MAX_MODEL_LEN), "--max-sessions", str(MAX_SESSIONS), "--drain-seconds", "0"]
    command = ["-c", "from kvroll_cli.main import main; main()", "serve", "--model", str(folder), *flags]
    process = await asyncio.create_subprocess_exec(sys.executable, *command)
    try:
        async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None)) as http:
            url = f"http://127.0.0.1:{metrics}/metrics"
            await _measured(process, url)
            yield Worker(url, Client(f"http://127.0.0.1:{port}", MODEL, http), http)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _measured(process: asyncio.subprocess.Process, url: str) -> None:
    """Returns when the worker serves and has measured its device."""
    deadline = time.monotonic() + START_SECONDS
    while process.returncode is None and time.monotonic() < deadline:
        try:
            async with httpx.AsyncClient(timeout=5.0) as http:
                if "kvroll_device_flops_per_second" in (await http.get(url)).text:
                    return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.2)
    raise RuntimeError(
        f"expected a worker that serves within {START_SECONDS:.0f} s, it ended with {process.returncode}"
    )


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
