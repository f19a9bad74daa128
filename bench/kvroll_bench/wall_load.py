"""Loads that bring one worker to a wall on purpose, over the OpenAI API, at as little CPU as a client can do with."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from kvroll_core.wall import Sample, Wall

VOCAB = 49152
POOL_PAGES = 96
"""Of 16-bit KV. So few that with 8-bit KV, which has 1.9 times as many, sessions wait for pages still, not for rows of a step (64)."""
STEPS, GENERATED = "kvroll_steps_total", "vllm:generation_tokens_total"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
ROOM_SECONDS = "kvroll_waiting_for_room_seconds_total"


@dataclass(frozen=True)
class Load:
    """`clients` that ask again and again: `prompt` tokens that nobody had before (or always the same, where `same`), and from half to
    all of `answer` tokens (all, where `same`).

    `waiting`: prompt tokens of one client beside them that comes when the others are there. `steps`: engine steps in a window, at least.
    """

    clients: int = 0
    prompt: int = 0
    answer: int = 0
    same: bool = False
    waiting: int = 0
    steps: int = 0


LOADS: dict[Wall, Load] = {
    Wall.IDLE: Load(),
    # One row a step reads all weights for one token.
    Wall.BANDWIDTH: Load(clients=1, prompt=64, answer=600, same=True, steps=60),
    # Prompts that nobody had before, four at a time, a token each: 64 rows a step, and half of the pages free.
    Wall.COMPUTE: Load(clients=4, prompt=256, answer=1, steps=16),
    # One long session holds 56 pages and may come to hold all; generating, it is one row a step. 42 pages are more than are free.
    Wall.BOTH: Load(clients=1, prompt=56 * 32, answer=39 * 32, same=True, waiting=42 * 32, steps=60),
    # Many short sessions: as many rows as make arithmetic the larger share, and more than the pool holds.
    Wall.CAPACITY: Load(clients=80, prompt=32, answer=128, steps=24),
}
MAX_SESSIONS = 96
MAX_MODEL_LEN = POOL_PAGES * 32


def is_there(wall: Wall, began: Sample, now: Sample) -> bool:
    """The load that began with one sample has brought the worker where its wall is."""
    grown = {n: (now.total(n) or 0.0) - (began.total(n) or 0.0) for n in (STEPS, GENERATED, ROOM_SECONDS)}
    waits = grown[ROOM_SECONDS] > 0 and bool(now.total(WAITING))
    match wall:
        case Wall.IDLE:
            return not now.total(RUNNING) and not now.total(WAITING)
        case Wall.BANDWIDTH:
            return grown[GENERATED] >= 10
        case Wall.COMPUTE:
            return grown[STEPS] >= 4
        case Wall.BOTH:
            return waits and grown[GENERATED] >= 12 and now.total(RUNNING) == LOADS[wall].clients
        case Wall.CAPACITY:
            return waits and grown[GENERATED] >= 40
        case _:
            raise ValueError(f"expected one of {', '.join(LOADS)}, found {wall}: no load brings it about")


class Client:
    """Reads streamed completions of random ids and throws them away: not even parsed, for the CPUs are the worker's."""

    def __init__(self, url: str, model: str, http: httpx.AsyncClient) -> None:
        self._url, self._model, self._http = f"{url}/v1/completions", model, http

    async def ask(self, prompt: list[int], answer: int, began: Callable[[], None] = lambda: None) -> None:
        """One completion to its end; `began` at its first bytes."""
        body = {"model": self._model, "prompt": prompt, "max_tokens": answer, "stream": True, "ignore_eos": True}
        async with self._http.stream("POST", self._url, json=body) as response:
            response.raise_for_status()
            async for _ in response.aiter_raw():
                began()


@asynccontextmanager
async def under(load: Load, client: Client, seed: int) -> AsyncIterator[None]:
    """The load runs inside the block; a request that is refused ends the block at once, with its error in a group."""
    # Streams of their own: two prompts that begin alike would share pages.
    draw = random.Random(f"once {seed}")
    fixed = [ids(random.Random(f"again {index}"), load.prompt) for index in range(load.clients)]
    started = [asyncio.Event() for _ in range(load.clients)]

    async def again(index: int) -> None:
        while True:
            prompt = fixed[index] if load.same else ids(draw, load.prompt)
            answer = load.answer if load.same else draw.randint((load.answer + 1) // 2, load.answer)
            await client.ask(prompt, answer, started[index].set)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(again(index)) for index in range(load.clients)]
        if load.waiting:
            await asyncio.gather(*(event.wait() for event in started))
            tasks.append(group.create_task(client.ask(ids(draw, load.waiting), 32)))
        yield
        for task in tasks:
            task.cancel()


def ids(draw: random.Random, count: int) -> list[int]:
    """So many token ids that are no special ones."""
    return [draw.randrange(100, VOCAB) for _ in range(count)]
