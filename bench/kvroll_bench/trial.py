"""A pool made for one trial: applied, streamed against, looked at."""

from typing import Any

import httpx

from kvroll_cli.demo import install
from kvroll_cli.demo.client import stream_chat
from kvroll_cli.demo.kube import Kube
from kvroll_cli.demo.transcript import Transcript


class TrialPool:
    """A pool with its own model name, so that the gateway cannot mix trials up."""

    def __init__(self, kube: Kube, site: install.Site, name: str, url: str) -> None:
        self.kube, self.site, self.name, self.url = kube, site, name, url

    async def apply(self, *, replicas: int, ready_seconds: int = 180, **spec: Any) -> None:
        """Applies the pool and waits until it is complete; `ready_seconds=0` does not wait."""
        await self.kube.apply(install.pool(self.name, self.site, replicas=replicas, model_name=self.name, **spec))
        if ready_seconds:
            await self.kube.wait("condition=RolloutComplete", f"kvpool/{self.name}", timeout_seconds=ready_seconds)

    async def pods(self) -> list[dict[str, Any]]:
        return list((await self.kube.get("pods", "-l", f"kvroll.dev/pool={self.name}"))["items"])

    async def status(self) -> dict[str, Any]:
        return dict((await self.kube.get("kvpool", self.name)).get("status", {}))

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
        return await stream_chat(http, transcript or Transcript(prompt=prompt, wave="e2e"), request)
