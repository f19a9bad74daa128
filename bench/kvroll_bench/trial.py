"""A pool made for one trial: applied, streamed against, looked at."""

from collections.abc import Callable
from typing import Any

import httpx

from kvroll_cli.demo.backends.backend import Backend
from kvroll_cli.demo.backends.objects import Object, condition, is_complete, until
from kvroll_cli.demo.load.client import stream_chat
from kvroll_cli.demo.load.pace import Pace
from kvroll_cli.demo.load.transcript import Transcript
from kvroll_cli.demo.load.wave import Wave, WaveLoad


class TrialPool:
    """A pool with its own model name, so that the gateway cannot mix trials up."""

    def __init__(self, backend: Backend, name: str, url: str) -> None:
        self.backend, self.name, self.url = backend, name, url
        self.objects = backend.objects

    async def apply(self, *, replicas: int, ready_seconds: float = 300, **spec: Any) -> None:
        """Applies the pool and waits until it is complete; `ready_seconds=0` does not wait."""
        await self.objects.apply(self.backend.pool(self.name, replicas=replicas, model_name=self.name, **spec))
        if ready_seconds:
            await self.until_complete(ready_seconds)

    async def patch(self, **spec: Any) -> None:
        """A merge patch of the spec."""
        await self.objects.patch("kvpool", self.name, {"spec": spec})

    async def until(self, holds: Callable[[Object], bool], what: str, timeout_seconds: float) -> Object:
        """Looks until `holds` of the pool.

        Raises:
            BackendError: it did not in time.
        """
        return await until(self.objects, "kvpool", self.name, holds, timeout_seconds=timeout_seconds, what=what)

    async def until_complete(self, timeout_seconds: float) -> None:
        """Until the rollout of the spec is over."""
        await self.until(is_complete, "complete", timeout_seconds)

    async def until_rolling(self, timeout_seconds: float = 60) -> None:
        """Until the operator has taken the newest spec up, and it is not complete."""
        await self.until(lambda pool: condition(pool, "RolloutComplete") == "False", "rolling", timeout_seconds)

    async def until_phase(self, phase: str, timeout_seconds: float) -> None:
        """Until `status.rollout.phase` is that."""

        def holds(pool: Object) -> bool:
            return bool(pool.get("status", {}).get("rollout", {}).get("phase") == phase)

        await self.until(holds, phase, timeout_seconds)

    async def pods(self) -> list[Object]:
        return await self.objects.list("pod", f"kvroll.dev/pool={self.name}")

    async def status(self) -> Object:
        return dict((await self.objects.get("kvpool", self.name)).get("status", {}))

    def wave(self, sessions: int, pace: Pace) -> Wave:
        """A load on this pool, not yet begun."""
        return Wave(self.url, self.name, WaveLoad(sessions, pace))

    def client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        return httpx.AsyncClient(
            base_url=self.url, timeout=httpx.Timeout(300, connect=10), limits=limits, trust_env=False
        )

    async def chat(
        self, http: httpx.AsyncClient, prompt: str, max_tokens: int, transcript: Transcript | None = None
    ) -> Transcript:
        """One greedy chat stream to its end."""
        messages = [{"role": "user", "content": prompt}]
        request = {
            "model": self.name,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        return await stream_chat(http, transcript or Transcript(prompt=prompt), request)
