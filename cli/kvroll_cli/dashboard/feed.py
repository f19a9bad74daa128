"""One look at the cluster a second for everyone who has the page open, and none while nobody has."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from kvroll_cli.dashboard.document import document
from kvroll_cli.errors import CliError
from kvroll_cli.kube.cluster import Cluster
from kvroll_cli.kube.snapshot import Snapshot, take

Look = Callable[[], dict[str, Any]]
_PASSES_BY_ITSELF = ("at",)


class ClusterLook:
    """Makes the document; what could not be read is told in `problem`, beside the last that could. `has_seen`: pools were read once."""

    def __init__(self, cluster: Cluster, pool: str | None) -> None:
        self._cluster = cluster
        self._pool = pool
        self._pools: tuple[Snapshot, ...] = ()
        self._events: list[dict[str, Any]] = []
        self.has_seen = False

    def __call__(self) -> dict[str, Any]:
        """Looks now; blocks as long as the API server does."""
        problems = []
        try:
            self._pools = take(self._cluster, self._pool)
            self.has_seen = True
        except CliError as error:
            problems.append(str(error))
        try:
            self._events = self._cluster.events() if not problems else self._events
        except CliError as error:
            problems.append(f"no events: {error}")
        return document(self._pools, self._events, datetime.now(UTC), "; ".join(problems))


class Feed:
    """The newest document, as JSON, to any number of followers. Looks only while somebody follows."""

    def __init__(self, look: Look, interval_seconds: float) -> None:
        self._look = look
        self._interval = interval_seconds
        self._text = ""
        self._number = 0
        self._followers = 0
        self._is_old = True
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks in the background until the block ends."""
        looking = asyncio.create_task(self._run())
        try:
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def follow(self) -> AsyncGenerator[tuple[int, str], None]:
        """(number, JSON) of the newest document, and of each that differs, until the follower leaves."""
        # What nobody has followed may be old: the first follower waits for a new look.
        seen = 0 if self._followers else self._number
        self._is_old = self._is_old or not self._followers
        self._followers += 1
        self._wanted.set()
        try:
            while True:
                async with self._changed:
                    while self._number <= seen:
                        await self._changed.wait()
                    seen, text = self._number, self._text
                yield seen, text
        finally:
            self._followers -= 1
            if not self._followers:
                self._wanted.clear()

    async def _run(self) -> None:
        shown: dict[str, Any] = {}
        while True:
            await self._wanted.wait()
            was_old, self._is_old = self._is_old, False
            found = await asyncio.to_thread(self._look)
            kept = {name: value for name, value in found.items() if name not in _PASSES_BY_ITSELF}
            if kept != shown or was_old:
                shown = kept
                async with self._changed:
                    self._number += 1
                    self._text = json.dumps(found)
                    self._changed.notify_all()
            await asyncio.sleep(self._interval)
