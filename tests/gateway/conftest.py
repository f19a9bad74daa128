"""Gateways and scripted workers on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from kvroll_gateway.service import Gateway
from kvroll_gateway.settings import GatewaySettings
from tests.gateway.fake_session import Script
from tests.gateway.fake_worker import FakeWorker

# pytest-asyncio asks for the current loop before its own; where none was ever set, asyncio makes one
# that nobody closes, which is a ResourceWarning at some later garbage collection.
asyncio.set_event_loop(None)


@dataclass
class Bench:
    """A gateway in front of scripted workers, with an HTTP client on it."""

    gateway: Gateway
    workers: list[FakeWorker]
    http: httpx.AsyncClient

    def metric(self, name: str, **labels: str) -> float:
        return self.gateway.registry.get_sample_value(name, labels) or 0.0

    async def until(self, condition: Callable[[], object], seconds: float = 3.0) -> None:
        """Waits for something to become true."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)

    def only_session(self) -> str:
        """The id of the one session that a worker holds."""
        (session_id,) = {name for worker in self.workers for name in worker.copies}
        return session_id


StartBench = Callable[..., Awaitable[Bench]]


@pytest.fixture
async def start() -> AsyncIterator[StartBench]:
    """Starts workers with the given scripts and a gateway that knows them; everything ends with the test."""
    async with AsyncExitStack() as stack:

        async def make(*scripts: Script, **settings: Any) -> Bench:
            workers = [FakeWorker(f"w{number}", script) for number, script in enumerate(scripts or (Script(),))]
            for worker in workers:
                await worker.start()
                stack.push_async_callback(worker.die)
            fields = {"worker_lost_seconds": 0.2, "worker_silent_seconds": 0.5, "keep_alive_seconds": 0.1, **settings}
            gateway = Gateway(
                GatewaySettings(workers=tuple(worker.address for worker in workers), **fields), gateway_id="gw-test"
            )
            await stack.enter_async_context(gateway)
            transport = httpx.ASGITransport(app=gateway.app)
            http = await stack.enter_async_context(
                httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=20)
            )
            bench = Bench(gateway, workers, http)
            await bench.until(lambda: bench.metric("kvroll_gateway_workers") == len(workers))
            return bench

        yield make


@dataclass
class Event:
    """One SSE event as a client saw it."""

    id: str
    data: Any

    @property
    def index(self) -> int:
        return int(self.id.rpartition(".")[2])


def read_events(text: str) -> list[Event]:
    """Parses a whole SSE body; comments are dropped."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in fields:
            data = fields["data"]
            events.append(Event(fields.get("id", ""), data if data == "[DONE]" else json.loads(data)))
    return events
