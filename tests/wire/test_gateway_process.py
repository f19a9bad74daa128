"""The gateway as its clients meet it: a process with a socket, the official OpenAI client, signals."""

import asyncio
import importlib.util
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import httpx
import openai
import pytest

ROOT = Path(__file__).parents[2]


def load_fake_worker() -> ModuleType:
    """The scripted worker of the gateway's own tests."""
    spec = importlib.util.spec_from_file_location("gateway_fake_worker", ROOT / "tests/gateway/fake_worker.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fake = load_fake_worker()


class Process:
    """`python -m kvroll_gateway` on a free port, in front of one scripted worker."""

    def __init__(self, worker: object) -> None:
        self.worker = worker
        self.url = ""

    async def start(self) -> None:
        path = os.pathsep.join(str(ROOT / room) for room in ("core", "gateway", "proto"))
        command = [sys.executable, "-m", "kvroll_gateway", "--worker", self.worker.address, "--host", "127.0.0.1", "--port", "0"]  # type: ignore[attr-defined]
        self.process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, "PYTHONPATH": path}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
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

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self._log
        await self.process.wait()


@pytest.fixture
async def gateway() -> AsyncIterator[Process]:
    worker = fake.FakeWorker("w0", fake.Script(token_seconds=0.01))
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
    return "".join(map(fake.text_of, fake.expected_ids(prompt, count)))


async def test_openais_client_chats(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [fake.MODEL]
    messages = [{"role": "user", "content": "a bc"}]
    whole = await client.chat.completions.create(model=fake.MODEL, messages=messages, max_completion_tokens=5, logprobs=True)  # type: ignore[call-overload]
    assert whole.choices[0].message.content == text(5, [1, 2])
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.total_tokens == 7
    assert len(whole.choices[0].logprobs.content) == 5
    stream = await client.chat.completions.create(  # type: ignore[call-overload]
        model=fake.MODEL, messages=messages, max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content for chunk in chunks[:-1]) == text(5, [1, 2])
    assert chunks[-1].usage.completion_tokens == 5
    assert chunks[-2].kvroll["record"]["completion_tokens"] == 5


async def test_openais_client_completes(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(model=fake.MODEL, prompt=[7, 8], max_tokens=4, logprobs=1)
    assert whole.choices[0].text == text(4, [7, 8])
    assert whole.choices[0].logprobs is not None
    assert len(whole.choices[0].logprobs.tokens or []) == 4
    stream = await client.completions.create(model=fake.MODEL, prompt="a bc", max_tokens=4, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == text(4, [1, 2])


async def test_openais_client_reads_our_errors(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.completions.create(model="none", prompt="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as unsupported:
        await client.completions.create(model=fake.MODEL, prompt="x", n=3)
    assert unsupported.value.param == "n"


async def test_a_closed_connection_frees_the_session(gateway: Process, client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model=fake.MODEL, prompt=[1], max_tokens=100_000, stream=True)
    await anext(aiter(stream))
    assert gateway.worker.copies  # type: ignore[attr-defined]
    await stream.close()
    async with asyncio.timeout(5):
        while gateway.worker.copies:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)


async def test_a_client_that_leaves_before_its_whole_answer_frees_the_session(gateway: Process, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        await client.completions.create(model=fake.MODEL, prompt=[1], max_tokens=100_000, timeout=0.5)
    async with asyncio.timeout(5):
        while gateway.worker.copies:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)


async def test_sigterm_lets_open_streams_end(gateway: Process, client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model=fake.MODEL, prompt=[1], max_tokens=100, stream=True)
    chunks = aiter(stream)
    got = (await anext(chunks)).choices[0].text
    gateway.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.2)
    with pytest.raises(openai.InternalServerError) as refused:
        await client.completions.create(model=fake.MODEL, prompt=[1], max_tokens=1)
    assert refused.value.code == "gateway_draining"
    async for chunk in chunks:
        got += chunk.choices[0].text
    assert got == text(100, [1])
    async with asyncio.timeout(10):
        assert await gateway.process.wait() == 0


async def test_a_second_signal_ends_at_once(gateway: Process, client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model=fake.MODEL, prompt=[1], max_tokens=100_000, stream=True)
    await anext(aiter(stream))
    gateway.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.2)
    gateway.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(10):
        assert await gateway.process.wait() == 0
    await stream.close()
