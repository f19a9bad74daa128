"""Runs a site in the foreground."""

import asyncio
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from kvroll_cli.errors import CliError
from kvroll_local.node.client import UNREACHABLE
from kvroll_local.node.machine import measured
from kvroll_local.node.schedule import NodeRoom
from kvroll_local.up import documents
from kvroll_local.up.errors import UpError
from kvroll_local.up.folder import default_state
from kvroll_local.up.progress import progress
from kvroll_local.up.site import LocalSite, SiteOptions
from kvroll_operator.api.crds import drain_crd, pool_crd

_LOOK_SECONDS, _IDLE_SECONDS = 0.2, 2.0


@dataclass(frozen=True)
class Asked:
    """The flags of `kvroll up`; None is a default that `verbs` describes."""

    file: Path | None
    model: Path | None
    replicas: int
    weights: str
    kv_cache: str
    host: str
    port: int | None
    devices: int | None
    memory_bytes: int | None
    cpus: int | None
    drain_seconds: float
    keep_state: bool
    state: Path | None


def up(asked: Asked) -> int:
    """Runs the site until it is told to end; returns the exit code.

    Raises:
        CliError: what was asked for cannot be run here.
    """
    try:
        return asyncio.run(_up(LocalSite(_options(asked)), asked.keep_state))
    except UpError as error:
        raise CliError(str(error)) from error


def _options(asked: Asked) -> SiteOptions:
    found = []
    if asked.file is not None:
        found = documents.read(asked.file)
    elif asked.model is not None:
        found = [documents.of_model(asked.model, asked.replicas, asked.weights, asked.kv_cache)]
    return SiteOptions(
        state=asked.state or default_state(),
        crds=[pool_crd(), drain_crd()],
        documents=found,
        gateway_host=asked.host,
        gateway_port=asked.port,
        drain_seconds=asked.drain_seconds,
        datasets=asked.file.resolve().parent if asked.file is not None else None,
        machine=_offered(measured(), asked),
    )


def _offered(machine: NodeRoom, asked: Asked) -> NodeRoom:
    if asked.devices is not None:
        named = [*machine.devices, *(str(n) for n in range(asked.devices) if str(n) not in machine.devices)]
        machine = replace(machine, devices=tuple(named[: asked.devices]))
    if asked.memory_bytes is not None:
        machine = replace(machine, memory_bytes=asked.memory_bytes)
    return machine if asked.cpus is None else replace(machine, cpu_millis=asked.cpus * 1000)


async def _up(site: LocalSite, keep_state: bool) -> int:
    told = _Signals()
    began = monotonic()
    await site.start()
    say(f"API server, node agent and gateway in {site.folder.path}")
    say(f"export KUBECONFIG={site.kubeconfig}")
    watching = asyncio.create_task(_tell(site, began))
    try:
        await told.first()
    finally:
        watching.cancel()
        say("ending; again: at once")
        began = monotonic()
        ending = asyncio.create_task(site.stop(keep_state))
        hurrying = asyncio.create_task(told.second())
        await asyncio.wait({ending, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await site.hurry()
        hurrying.cancel()
        await ending
        say(f"ended after {monotonic() - began:.1f} s{'; its state is kept' if keep_state else ''}")
    return 0


async def _tell(site: LocalSite, began: float) -> None:
    """Says how far each pool is whenever that changes."""
    shown: dict[str, str] = {}
    serving: set[str] = set()
    while True:
        try:
            for pool in await site.pools():
                found = progress(pool, await site.workers(pool["metadata"]["name"]))
                if not found.is_complete:
                    serving.discard(found.pool)
                elif found.pool not in serving and await site.serves(pool):
                    serving.add(found.pool)
                text = f"{found}: complete, {site.gateway_url}/v1" if found.pool in serving else str(found)
                if shown.get(found.pool) != text:
                    shown[found.pool] = text
                    say(f"{monotonic() - began:6.1f} s  {text}")
        except UNREACHABLE as error:
            say(f"the API server does not answer: {error}")
        await asyncio.sleep(_LOOK_SECONDS if shown.keys() - serving else _IDLE_SECONDS)


class _Signals:
    """The first asks for the end, the second for it at once."""

    def __init__(self) -> None:
        self._events = (asyncio.Event(), asyncio.Event())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if (
                signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGTERM
            ):  # nohup, and shells' background jobs
                asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        for event in self._events:
            if not event.is_set():
                event.set()
                return

    async def first(self) -> None:
        await self._events[0].wait()

    async def second(self) -> None:
        await self._events[1].wait()


def say(text: Any) -> None:
    """One line for people, at once."""
    print(text, file=sys.stderr, flush=True)
