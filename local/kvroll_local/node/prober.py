"""Asks a container what its probes ask, and tells what the answers amount to."""

import asyncio
import signal
import time
from collections.abc import Callable

import aiohttp

from kvroll_local.node.container import Container
from kvroll_local.node.probe import KINDS, Findings, PodProbe, parse

_EAGER_SECONDS = 0.5
"""Until a container is ready it is asked this often, or more: a kubelet waits whole periods, and a person waits here."""


class Prober:
    """All probes of one container. `changed` is called when it became ready or unready."""

    def __init__(self, container: Container, pod_ip: str, grace_seconds: float, changed: Callable[[], None]) -> None:
        self._container, self._grace_seconds, self._changed = container, grace_seconds, changed
        self._probes = {kind: probe for kind in KINDS if (probe := parse(kind, container.spec, pod_ip)) is not None}

    async def run(self) -> None:
        """Probes until cancelled."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, ssl=False), trust_env=False
        ) as http:
            await asyncio.gather(*(self._follow(kind, probe, http) for kind, probe in self._probes.items()))

    async def _follow(self, kind: str, probe: PodProbe, http: aiohttp.ClientSession) -> None:
        """One probe, over all runs of the container."""
        container = self._container
        seen, findings = None, Findings(False)
        while True:
            if container.identity != seen:
                # A new process begins anew; one that was adopted keeps what it was found to be.
                seen, findings = container.identity, Findings(self._before(kind))
                await asyncio.sleep(probe.initial_delay_seconds if seen else 0)
            if seen is not None and (kind == "startupProbe" or container.has_started):
                findings = findings.after(await _answers(probe, http), probe)
                if container.identity == seen:
                    await self._tell(kind, probe, findings)
            settled = seen is not None and findings.healthy and container.has_started
            await asyncio.sleep(probe.period_seconds if settled else min(probe.period_seconds, _EAGER_SECONDS))

    def _before(self, kind: str) -> bool:
        return {"startupProbe": self._container.startup_found, "readinessProbe": self._container.ready_found}.get(
            kind, True
        )

    async def _tell(self, kind: str, probe: PodProbe, findings: Findings) -> None:
        container = self._container
        failed = not findings.healthy and findings.last is False and findings.num_same >= probe.failure_threshold
        if kind != "readinessProbe" and failed:
            await end(container, self._grace_seconds)
        elif kind == "startupProbe" and container.startup_found != findings.healthy:
            container.startup_found = findings.healthy
            self._changed()
        elif kind == "readinessProbe" and container.ready_found != findings.healthy:
            container.ready_found = findings.healthy
            self._changed()


async def _answers(probe: PodProbe, http: aiohttp.ClientSession) -> bool:
    """Whether it answered as a kubelet wants it."""
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            if not probe.url:
                _, writer = await asyncio.open_connection(probe.host, probe.port)
                writer.close()
                return True
            async with http.get(probe.url, headers=dict(probe.headers), allow_redirects=False) as answer:
                return 200 <= answer.status < 400
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def end(container: Container, grace_seconds: float) -> None:
    """SIGTERM, and SIGKILL where it did not go within its grace."""
    deadline, identity = time.monotonic() + grace_seconds, container.identity
    container.signal(signal.SIGTERM)
    while identity is not None and container.identity == identity:
        if time.monotonic() >= deadline:
            container.signal(signal.SIGKILL)
        await asyncio.sleep(0.05)
