"""The gateway as a process: SIGTERM lets streams end, a second one does not."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.gateway.fake_session import MODEL, Script, expected_ids, text_of
from tests.gateway.fake_worker import FakeWorker

pytestmark = pytest.mark.slow  # each starts an interpreter
ROOT = Path(__file__).parents[2]


class Process:
    """`python -m kvroll_gateway` on a free port, in front of one scripted worker."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.url = ""

    async def start(self) -> None:
        path = os.pathsep.join(str(ROOT / room) for room in ("core", "gateway", "proto"))
        command = [
            sys.executable,
            "-m",
            "kvroll_gateway",
            "--worker",
            self.worker.address,
            "--host",
            "127.0.0.1",
            "--port",
            "0",
        ]
        self.process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, "PYTHONPATH": path},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            while not self.url:
                line = (await self.process.stdout.readline()).decode()
                assert line, "the gateway ended before it served"
                if found := re.search(r'"port": (\d+)', line):
                    self.url = f"http://127.0.0.1:{found[1]}"
        self._log = asyncio.create_task(self.process.stdout.read())
        async with httpx.AsyncClient(base_url=self.url) as http, asyncio.timeout(10):
            while not (await http.get("/v1/models")).json()["data"]:
                await asyncio.sleep(0.05)

    async def log(self) -> bytes:
        """What it wrote after it served, once it has ended."""
        return await self._log

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self._log
        await self.process.wait()


@pytest.fixture
async def gateway() -> AsyncIterator[Process]:
    worker = FakeWorker("w0", Script(token_seconds=0.01))
    await worker.start()
    process = Process(worker)
    await process.start()
    yield process
    await process.stop()
    await worker.die()


@pytest.fixture
async def client(gateway: Process) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0) as one:
        yield one


def text(count: int, prompt: list[int]) -> str:
    return "".join(map(text_of, expected_ids(prompt, count)))


async def test_sigterm_lets_open_streams_end(gateway: Process, client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model=MODEL, prompt=[1], max_tokens=100, stream=True)
    chunks = aiter(stream)
    got = (await anext(chunks)).choices[0].text
    gateway.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.2)
    with pytest.raises(openai.InternalServerError) as refused:
        await client.completions.create(model=MODEL, prompt=[1], max_tokens=1)
    assert refused.value.code == "gateway_draining"
    async for chunk in chunks:
        got += chunk.choices[0].text
    assert got == text(100, [1])
    async with asyncio.timeout(10):
        assert await gateway.process.wait() == 0


async def test_a_second_signal_ends_at_once(gateway: Process, client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model=MODEL, prompt=[1], max_tokens=100_000, stream=True)
    chunks = aiter(stream)
    await anext(chunks)
    gateway.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.2)
    gateway.process.send_signal(signal.SIGTERM)
    with pytest.raises(openai.APIError) as ended:
        async for _ in chunks:
            pass
    assert ended.value.code == "gateway_stopping"
    async with asyncio.timeout(20):
        assert await gateway.process.wait() == 0
    assert b"Traceback" not in await gateway.log()


async def test_a_taken_port_and_a_bad_key_are_one_line(gateway: Process, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("short")
    port = gateway.url.rpartition(":")[2]
    for flags, told in (
        (["--port", port], f"cannot listen on 127.0.0.1:{port}"),
        (["--session-key-file", str(key)], "at least 16 bytes"),
    ):
        path = os.pathsep.join(str(ROOT / room) for room in ("core", "gateway", "proto"))
        refused = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kvroll_gateway", "--worker", gateway.worker.address, "--host", "127.0.0.1", *flags,
            env={**os.environ, "PYTHONPATH": path}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await asyncio.wait_for(refused.communicate(), 60)
        assert (refused.returncode, b"Traceback" in errors) == (2, False)
        assert told in errors.decode()
