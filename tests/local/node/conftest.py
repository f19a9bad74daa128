"""A node agent against the embedded API server, both in this process; its Pods are small Python programs."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvroll_local.api.access import Access
from kvroll_local.api.server import ApiServer
from kvroll_local.node.addresses import server_address, subnets
from kvroll_local.node.agent import Agent
from kvroll_local.node.client import Client, NodeApiError
from kvroll_local.node.machine import listener_problem
from kvroll_local.node.schedule import NodeRoom

Json = dict[str, Any]
CRDS = Path(__file__).parents[3] / "crds"
PODS = "/api/v1/namespaces/default/pods"


class Node:
    """One state folder: a server that stays, and agents that come and go."""

    def __init__(self, state: Path, client: Client, machine: NodeRoom) -> None:
        self.state, self.client, self.machine = state, client, machine
        self.subnet = next(s for s in subnets(str(state)) if not listener_problem(server_address(s), 7070))
        self.agent: Agent | None = None
        self._running: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """An agent begins; returns when it has settled."""
        environ = {**os.environ, "SECRET_OF_MY_SHELL": "1"}
        self.agent = Agent(self.client, self.state, self.subnet, self.machine, environ, sys.executable)
        self._running = asyncio.create_task(self.agent.run())
        await self.agent.settled()

    async def die(self) -> None:
        """The agent goes as by kill -9: it ends nothing and writes nothing."""
        assert self._running is not None
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running

    async def make(self, name: str, program: str = "import time; time.sleep(1e6)", **changes: Any) -> None:
        """A Pod that runs a Python program."""
        spec_changes = changes.pop("spec", {})
        container = {"name": "main", "command": ["python", "-u", "-c", program], **changes}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 5, **spec_changes}
        await self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    async def pod(self, name: str) -> Json:
        return await self.client.get(f"{PODS}/{name}")

    async def container(self, name: str) -> Json:
        found: Json = (await self.pod(name))["status"]["containerStatuses"][0]
        return found

    async def pid(self, name: str) -> int:
        return int((await self.container(name))["containerID"].removeprefix("process://"))

    async def delete(self, name: str, grace_seconds: int | None = None) -> None:
        uid = (await self.pod(name))["metadata"]["uid"]
        await self.client.delete(f"{PODS}/{name}", uid=uid, grace_seconds=grace_seconds)

    async def gone(self, name: str) -> bool:
        try:
            await self.pod(name)
        except NodeApiError as error:
            return error.status == 404
        return False

    def log(self, pod: Json, part: str = "main.log") -> str:
        path = self.state / "pods" / pod["metadata"]["uid"] / part
        return path.read_text() if path.exists() else ""

    async def running(self, name: str) -> Json:
        """The Pod, once its process runs."""

        async def runs() -> bool:
            statuses = (await self.pod(name)).get("status", {}).get("containerStatuses", [])
            return bool(statuses) and "running" in statuses[0]["state"]

        await until(runs)
        return await self.pod(name)


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Waits until it holds; the test's own time-out is the bound."""
    while not await holds():
        await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@asynccontextmanager
async def node_with(state: Path, machine: NodeRoom) -> AsyncIterator[Node]:
    crds = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
    access = Access.load(state)
    async with ApiServer(state, crds, access) as server:
        tls = ssl.create_default_context(cafile=str(access.certificate))
        async with Client(server.url, access.token, tls) as client:
            node = Node(state, client, machine)
            await node.begin()
            try:
                yield node
            finally:
                assert node.agent is not None
                await node.agent.end(0)
                await node.die()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_with(tmp_path, NodeRoom(4000, 4 << 30, ("0", "1"))) as made:
        yield made
