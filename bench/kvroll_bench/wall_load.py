"""Loads that bring one worker to a wall on purpose, over the OpenAI API."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

VOCAB = 49152
PAGE = 32


@dataclass(frozen=True)
class Load:
    """`clients` that ask again and again: `prompt` tokens that nobody had before (or always the same, where `same`), `answer` tokens.

    `waiting`: clients beside them that come when the others generate, with prompts of their own.
    """

    clients: int
    prompt: int
    answer: int
    same: bool = False
    waiting: int = 0


class Client:
    """Streams completions of random ids; counts the tokens that came."""

    def __init__(self, url: str, model: str, http: httpx.AsyncClient) -> None:
        self._url, self._model, self._http = f"{url}/v1/completions", model, http
        self.tokens = 0

    async def ask(self, prompt: list[int], answer: int, began: Callable[[], None] = lambda: None) -> None:
        """One completion to its end; `began` at its first token."""
        body = {"model": self._model, "prompt": prompt, "max_tokens": answer, "stream": True, "ignore_eos": True}
        async with self._http.stream("POST", self._url, json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {") and json.loads(line[6:]).get("choices"):
                    self.tokens += 1
                    began()


@asynccontextmanager
async def under(load: Load, client: Client, seed: int) -> AsyncIterator[None]:
    """The load runs inside the block, and every one of its clients generates or waits when the block begins."""
    draw = random.Random(seed)
    fixed = [ids(random.Random(index), load.prompt) for index in range(load.clients)]
    started = [asyncio.Event() for _ in range(load.clients)]

    async def again(index: int) -> None:
        while True:
            prompt = fixed[index] if load.same else ids(draw, load.prompt)
            await client.ask(prompt, load.answer, started[index].set)

    async with _running([lambda i=i: again(i) for i in range(load.clients)]):  # type: ignore[misc]
        if load.same:
            await asyncio.gather(*(event.wait() for event in started))
        waiters = [lambda: client.ask(ids(draw, load.prompt), load.answer) for _ in range(load.waiting)]
        async with _running(waiters):
            await asyncio.sleep(0.5 if load.clients else 0.0)
            yield


def ids(draw: random.Random, count: int) -> list[int]:
    """So many token ids that are no special ones."""
    return [draw.randrange(100, VOCAB) for _ in range(count)]


@asynccontextmanager
async def _running(works: Sequence[Callable[[], Awaitable[None]]]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work()) for work in works]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()  # a refused request is no load
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
