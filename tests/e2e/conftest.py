"""One install of the charts for all e2e tests, and a pool a test: against `make cluster-up`'s cluster or any `KUBECONFIG`."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import httpx
import pytest

from kvroll_bench import install
from kvroll_bench.client import stream_chat
from kvroll_bench.kube import CommandError, Kube
from kvroll_bench.transcript import Transcript

NAMESPACE = "kvroll-e2e"
R = TypeVar("R")


def run(coroutine: Coroutine[Any, Any, R]) -> R:
    """Runs one coroutine to its end; e2e tests are plain functions around it."""
    return asyncio.run(coroutine)


@pytest.fixture(scope="session")
def site() -> install.Site:
    return install.Site.find()


@pytest.fixture(scope="session")
def kube(site: install.Site) -> Iterator[Kube]:
    """The cluster with kvroll installed in the e2e namespace."""
    try:
        cluster = Kube(NAMESPACE)
        run(cluster.run("kubectl", "get", "--raw", "/readyz"))
    except CommandError as error:
        pytest.fail(f"the e2e tests need a cluster: {error}")
    run(install.install(cluster, site))
    yield cluster
    run(cluster.kubectl("delete", "kvpool", "--all", "--timeout=120s", check=False))


class Pool:
    """A pool with its own model name, so that the gateway cannot mix tests up."""

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
        return httpx.AsyncClient(base_url=self.url, timeout=httpx.Timeout(300, connect=10), limits=limits, trust_env=False)

    async def chat(self, http: httpx.AsyncClient, prompt: str, max_tokens: int, transcript: Transcript | None = None) -> Transcript:
        """One greedy chat stream to its end."""
        messages = [{"role": "user", "content": prompt}]
        request = {"model": self.name, "messages": messages, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        return await stream_chat(http, transcript or Transcript(prompt=prompt, wave="e2e"), request)


@pytest.fixture
def pool(kube: Kube, site: install.Site, request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A pool named after the test; gone with it."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:20].strip("-")
    made = Pool(kube, site, name, run(install.gateway_url(kube)))
    yield made
    run(kube.kubectl("delete", "kvpool", name, "--ignore-not-found", "--timeout=120s", check=False))
