"""The gateway behind a real socket, met by OpenAI's own client."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from kvroll_gateway.service import Gateway
from kvroll_gateway.serving import Listener
from kvroll_gateway.settings import GatewaySettings
from tests.gateway.fake_session import MODEL, Script, expected_ids, text_of
from tests.gateway.fake_worker import FakeWorker

ROOT = Path(__file__).parents[2]


@dataclass
class Served:
    """A served gateway and the scripted worker behind it."""

    url: str
    worker: Any


@pytest.fixture
async def gateway() -> AsyncIterator[Served]:
    worker = FakeWorker("w0", Script(token_seconds=0.01))
    await worker.start()
    async with Gateway(GatewaySettings(workers=(worker.address,))) as gateway:
        async with asyncio.timeout(10):
            while not gateway.models():
                await asyncio.sleep(0.01)
        async with Listener(gateway, "127.0.0.1", 0) as listener:
            yield Served(f"http://127.0.0.1:{listener.port}", worker)
    await worker.die()


@pytest.fixture
async def client(gateway: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0) as one:
        yield one


def text(count: int, prompt: list[int]) -> str:
    return "".join(map(text_of, expected_ids(prompt, count)))


async def test_openais_client_chats(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    messages: Any = [{"role": "user", "content": "a bc"}]
    whole: Any = await client.chat.completions.create(
        model=MODEL, messages=messages, max_completion_tokens=5, logprobs=True
    )
    assert whole.choices[0].message.content == text(5, [1, 2])
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.total_tokens == 7
    assert len(whole.choices[0].logprobs.content) == 5
    stream: Any = await client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content for chunk in chunks[:-1]) == text(5, [1, 2])
    assert chunks[-1].usage.completion_tokens == 5
    assert chunks[-2].kvroll["record"]["completion_tokens"] == 5


async def test_openais_client_completes(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(model=MODEL, prompt=[7, 8], max_tokens=4, logprobs=1)
    assert whole.choices[0].text == text(4, [7, 8])
    assert whole.choices[0].logprobs is not None
    assert len(whole.choices[0].logprobs.tokens or []) == 4
    stream = await client.completions.create(model=MODEL, prompt="a bc", max_tokens=4, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == text(4, [1, 2])


async def test_openais_client_reads_our_errors(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.completions.create(model="none", prompt="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as unsupported:
        await client.completions.create(model=MODEL, prompt="x", suffix="y")
    assert unsupported.value.param == "suffix"


async def test_a_closed_connection_frees_the_session(gateway: Served, client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model=MODEL, prompt=[1], max_tokens=100_000, stream=True)
    await anext(aiter(stream))
    assert gateway.worker.copies
    await stream.close()
    async with asyncio.timeout(5):
        while gateway.worker.copies:
            await asyncio.sleep(0.01)


async def test_a_client_that_leaves_before_its_whole_answer_frees_the_session(
    gateway: Served, client: openai.AsyncOpenAI
) -> None:
    with pytest.raises(openai.APITimeoutError):
        await client.completions.create(model=MODEL, prompt=[1], max_tokens=100_000, timeout=0.5)
    async with asyncio.timeout(5):
        while gateway.worker.copies:
            await asyncio.sleep(0.01)
