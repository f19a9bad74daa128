"""A wave: a steady number of streaming sessions of mixed length, kept up until it is told to end."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import httpx

from kvroll_cli.demo.client import stream_chat
from kvroll_cli.demo.transcript import Transcript

SYSTEM_PROMPT = (
    "You are the assistant of a museum of maritime history. Answer in full sentences, stay polite, and mention a year or a place where you "
    "can. The museum keeps forty ships, nine hundred charts, two lighthouses and a library of logbooks that go back to the year 1688. "
    "Visitors ask about voyages, about the people aboard, about weather, cargo, food, illness, trade routes, instruments and wrecks. "
    "When a question is unclear, say what you assume and go on. Never refuse, never answer with a single word, and keep the story going "
    "until the visitor has a clear picture of the time, the ship and the people. Name your sources when you quote a logbook."
)
QUESTIONS = (
    "Tell me about a voyage around Cape Horn.",
    "How did sailors find their longitude before clocks?",
    "What did a ship's cook prepare in a storm?",
    "Describe the day of a lighthouse keeper.",
    "Why did wooden ships need copper on their hulls?",
    "How was tea carried from China to London?",
    "What is written in a logbook, and by whom?",
    "Which illnesses were feared most at sea?",
)


@dataclass(frozen=True)
class Shape:
    """What a wave is made of: concurrent sessions, and the tokens of its first sessions and of those that replace finished ones."""

    sessions: int
    max_tokens: tuple[int, ...]
    replacement_tokens: int
    shared_prompt_fraction: float = 0.5


class Wave:
    """Keeps `shape.sessions` chats streaming against a gateway; `stop()` lets the open ones end by themselves."""

    def __init__(self, name: str, base_url: str, model: str, shape: Shape, seed: int = 1) -> None:
        self.name = name
        self.transcripts: list[Transcript] = []
        self.shape = shape
        self._model = model
        self._random = random.Random(seed)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx.AsyncClient(
            base_url=base_url, timeout=httpx.Timeout(300, connect=10), limits=limits, trust_env=False
        )
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Opens the sessions."""
        self._tasks = [asyncio.create_task(self._slot(i)) for i in range(self.shape.sessions)]

    def stop(self) -> None:
        """Starts no further session."""
        self._stopping.set()

    async def finish(self) -> list[Transcript]:
        """Waits until every session has ended and returns all transcripts."""
        self.stop()
        await asyncio.gather(*self._tasks)
        await self._http.aclose()
        return self.transcripts

    @property
    def num_streaming(self) -> int:
        """Sessions that have received a token and have not ended."""
        return sum(1 for t in self.transcripts if t.arrivals and t.is_lost and t.error is None)

    async def _slot(self, slot: int) -> None:
        lengths = self.shape.max_tokens
        await self._session(lengths[slot % len(lengths)])
        while not self._stopping.is_set():
            await self._session(self.shape.replacement_tokens)

    async def _session(self, max_tokens: int) -> None:
        question = self._random.choice(QUESTIONS)
        transcript = Transcript(prompt=question, wave=self.name)
        self.transcripts.append(transcript)
        await stream_chat(self._http, transcript, self._request(question, max_tokens))
        if transcript.error:  # a refusing gateway must not be hammered
            await asyncio.sleep(1)

    def _request(self, question: str, max_tokens: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": question}]
        if self._random.random() < self.shape.shared_prompt_fraction:
            messages.insert(0, {"role": "system", "content": SYSTEM_PROMPT})
        seed = self._random.randrange(2**31)
        # ignore_eos: the length of a session is the wave's choice, not the model's.
        return {
            "model": self._model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0.8,
            "seed": seed,
            "ignore_eos": True,
        }
