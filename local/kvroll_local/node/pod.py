"""One Pod that this node holds: from its binding to its last process."""

import asyncio
import json
import logging
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvroll_local.node import status
from kvroll_local.node.client import UNREACHABLE, Client, NodeApiError
from kvroll_local.node.container import Container, now
from kvroll_local.node.environment import CONTAINER_MARK, STATE_MARK, of_process
from kvroll_local.node.machine import listener_problem
from kvroll_local.node.podspec import command, variables
from kvroll_local.node.prober import Prober
from kvroll_local.node.schedule import Grant, RoomRequest

Json = dict[str, Any]
_RETRY_SECONDS = 1.0
_RECORD = "pod.json"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """What the Pod was given here: written down before its first process starts."""

    address: str
    grant: Grant
    threads: int

    def keep(self, folder: Path) -> None:
        """Writes it down."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = folder / f"{_RECORD}.tmp"
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(folder / _RECORD)

    @classmethod
    def kept(cls, folder: Path) -> "Place | None":
        """What an agent before us wrote down."""
        try:
            kept = json.loads((folder / _RECORD).read_text())
            asked = RoomRequest(**{**kept["grant"]["request"], "unknown": tuple(kept["grant"]["request"]["unknown"])})
            return cls(kept["address"], Grant(asked, tuple(kept["grant"]["devices"])), kept["threads"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class Surroundings:
    """What all Pods of the node share. `state` is the site's folder, `python` the interpreter that stands in for an image's."""

    client: Client
    state: Path
    environ: Mapping[str, str]
    python: str


class PodRun:
    """`pod` is the newest version seen. It ends when `live` returns: the object is gone then, or `end` was called. `freed` is
    called when no container runs or will run, though the object is still there.
    """

    def __init__(self, pod: Json, place: Place, around: Surroundings, freed: Callable[[], None]) -> None:
        self.pod, self.place = pod, place
        self._freed = freed
        self.uid = str(pod["metadata"]["uid"])
        self._around = around
        self._policy = str(pod["spec"].get("restartPolicy", "Always"))
        self._folder = around.state / "pods" / self.uid
        self._containers = [Container(c, self._folder, self._policy, self._wake) for c in pod["spec"]["containers"]]
        self._news = asyncio.Event()
        self._shown: Json = pod.get("status") or {}
        self.is_lost = False
        self._ends_within: float | None = None

    @property
    def path(self) -> str:
        """Its address at the API server."""
        meta = self.pod["metadata"]
        return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"

    @property
    def is_over(self) -> bool:
        """No container runs or will run: what it held is free again."""
        return all(c.is_over for c in self._containers)

    @property
    def is_running(self) -> bool:
        """Whether any of its processes lives."""
        return any(c.is_running for c in self._containers)

    @property
    def is_ready(self) -> bool:
        """Whether all of its containers are."""
        return all(c.is_ready for c in self._containers)

    def adopt(self, strays: Mapping[str, int]) -> None:
        """Takes over the processes of an agent before us; what was ready stays so until a probe says otherwise."""
        before = {c["name"]: c for c in self._shown.get("containerStatuses", [])}
        for container in self._containers:
            shown = before.get(container.name, {})
            if container.adopt(strays.get(container.mark)):
                container.ready_found, container.startup_found = bool(shown.get("ready")), bool(shown.get("started"))

    def update(self, pod: Json) -> None:
        """A newer version of the object."""
        self.pod = pod
        self._wake()

    def lose(self) -> None:
        """The object is gone: whatever still runs is killed."""
        self.is_lost = True
        self._wake()

    def end(self, within_seconds: float) -> None:
        """Ends its processes and leaves the object."""
        self._ends_within = within_seconds
        self._wake()

    async def live(self) -> None:
        """Runs the Pod until it is gone. Cancelling it leaves the processes running."""
        grace = float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))
        probers = [
            asyncio.create_task(Prober(c, self.place.address, grace, self._wake).run()) for c in self._containers
        ]
        try:
            while not self._is_leaving:
                for container in self._containers:
                    container.start_if_due(lambda c=container: self._prepared(c))  # type: ignore[misc]
                told = await self.report()
                if self.is_over:
                    self._freed()
                await self._next(told)
            await self._leave()
        finally:
            for prober in probers:
                prober.cancel()
            await asyncio.gather(*probers, return_exceptions=True)
            for container in self._containers:
                container.release()

    async def report(self) -> bool:
        """Writes the status where it changed; whether the server has it now."""
        leaving = "deletionTimestamp" in self.pod["metadata"] and not self.is_running
        policy = "Deleted" if leaving else self._policy
        shown = status.running(self.place.address, [c.status() for c in self._containers], policy, self._shown, now())
        if shown == self._shown or self.is_lost:
            return True
        try:
            await self._around.client.patch(f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": shown})
        except UNREACHABLE as error:
            is_gone = isinstance(error, NodeApiError) and error.is_gone  # the watch tells more
            if not is_gone:
                log.warning("status of %s: %s", self.path, error)
            return is_gone
        self._shown = shown
        return True

    @property
    def _is_leaving(self) -> bool:
        return self.is_lost or self._ends_within is not None or "deletionTimestamp" in self.pod["metadata"]

    def _wake(self) -> None:
        self._news.set()

    async def _next(self, told: bool) -> None:
        """Waits for news, a restart that falls due, or the time to tell the server again."""
        waits = [wait for c in self._containers if (wait := c.seconds_to_restart()) is not None]
        if not told:
            waits.append(_RETRY_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), min(waits, default=None))
        self._news.clear()

    def _prepared(self, container: Container) -> tuple[list[str], dict[str, str]]:
        """Command line and environment. Raises OSError where somebody else listens at its address."""
        for port in container.spec.get("ports", []):
            problem = listener_problem(port.get("hostIP") or self.place.address, int(port["containerPort"]))
            if problem:
                raise OSError(f"the Pod's port {port.get('name', '')}: {problem}")
        address = self.place.address
        fields = {
            "status.podIP": address,
            "status.podIPs": address,
            "status.hostIP": status.HOST_IP,
            "spec.nodeName": status.NODE,
        }
        own = variables(container.spec, self.pod, fields)
        env = of_process(
            self._around.environ, own, ip=address, threads=self.place.threads, devices=self.place.grant.devices,
            marks={STATE_MARK: str(self._around.state), CONTAINER_MARK: container.mark},
        )  # fmt: skip
        return command(container.spec, env, self._around.python), env

    async def _leave(self) -> None:
        """SIGTERM, the grace that the newest version of the object gives, SIGKILL; then the object goes too."""
        began = time.monotonic()
        for container in self._containers:
            container.signal(signal.SIGTERM)
        while self.is_running:
            left = began + self._grace_seconds() - time.monotonic()
            if left <= 0:
                for container in self._containers:
                    container.signal(signal.SIGKILL)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left if left > 0 else _RETRY_SECONDS)
            self._news.clear()
        while not self.is_lost and "deletionTimestamp" in self.pod["metadata"]:
            await self.report()
            try:
                await self._around.client.delete(self.path, uid=self.uid, grace_seconds=0)
                return
            except UNREACHABLE as error:
                if isinstance(error, NodeApiError) and error.status in (404, 409):
                    return
                await asyncio.sleep(_RETRY_SECONDS)

    def _grace_seconds(self) -> float:
        asked = [float(self.pod["metadata"].get("deletionGracePeriodSeconds", 30))] if not self.is_lost else [0.0]
        if self._ends_within is not None:
            asked.append(self._ends_within)
        return min(asked)
