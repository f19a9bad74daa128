"""A wave: a steady number of streaming sessions of mixed length, kept up until it is told to end."""

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Any

import httpx

from kvroll_cli.demo.load.client import stream_chat
from kvroll_cli.demo.load.pace import Pace
from kvroll_cli.demo.load.transcript import Transcript

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
_RATE_WINDOW_SECONDS = 5.0


@dataclass(frozen=True)
class WaveLoad:
    """What a wave is made of: how many sessions stream at once, and how long each is."""

    sessions: int
    pace: Pace
    shared_prompt_fraction: float = 0.5


class Wave:
    """Keeps `load.sessions` chats streaming against a gateway; `stop()` lets the open ones end by themselves."""

    def __init__(self, base_url: str, model: str, load: WaveLoad, seed: int = 1) -> None:
        self.load = load
        self.transcripts: list[Transcript] = []
        self.slots: list[Transcript | None] = [None] * load.sessions
        """The newest session of each slot: what a screen shows."""
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
        self._tasks = [asyncio.create_task(self._slot(i)) for i in range(self.load.sessions)]

    def stop(self) -> None:
        """Starts no further session."""
        self._stopping.set()

    async def finish(self) -> list[Transcript]:
        """Waits until every session has ended and returns all transcripts."""
        self.stop()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self._http.aclose()
        return self.transcripts

    async def abandon(self) -> None:
        """Hangs up: for a client that goes before its sessions do."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    @property
    def streaming(self) -> list[Transcript]:
        """Sessions that have received a token and have not ended."""
        return [t for t in self.slots if t is not None and t.is_streaming]

    def tokens_per_second(self) -> float | None:
        """Of one session, over the last seconds: what a session gets, stalls and neighbours included. None while nothing streams."""
        since = time.monotonic() - _RATE_WINDOW_SECONDS
        rates = []
        for transcript in self.streaming:
            began = max(since, transcript.arrivals[0].seconds)
            recent = sum(1 for a in reversed(transcript.arrivals[-2000:]) if a.seconds >= began)
            if time.monotonic() - began >= 1.0:
                rates.append(recent / (time.monotonic() - began))
        return sum(rates) / len(rates) if rates else None

    async def _slot(self, slot: int) -> None:
        await self._session(slot, slot, is_first=True)
        while not self._stopping.is_set():
            await self._session(slot, len(self.transcripts), is_first=False)

    async def _session(self, slot: int, number: int, *, is_first: bool) -> None:
        question = self._random.choice(QUESTIONS)
        transcript = Transcript(prompt=question)
        self.transcripts.append(transcript)
        self.slots[slot] = transcript
        tokens = self.load.pace.tokens(number, is_first=is_first, tokens_per_second=self.tokens_per_second())
        transcript.asked_tokens = tokens
        await stream_chat(self._http, transcript, self._request(question, tokens))
        if transcript.error:  # a refusing gateway must not be hammered
            await asyncio.sleep(1)

    def _request(self, question: str, max_tokens: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": question}]
        if self._random.random() < self.load.shared_prompt_fraction:
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
