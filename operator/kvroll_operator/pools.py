"""The set of pool loops: one a pool, started when it is seen, ended when it is gone."""

import asyncio
import time
from pathlib import Path

import structlog

from kvroll_operator.backoff import Backoff
from kvroll_operator.cluster.client import Api, ApiError
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.cluster.workers import Workers
from kvroll_operator.metrics import Metrics
from kvroll_operator.pool_loop import DATASET_FOLDER, PoolLoop

log = structlog.get_logger()

RESYNC_SECONDS = 30.0
STUCK_AFTER_SECONDS = 120.0


class Pools:
    """Events only name a pool here; what is to be done is found out by its loop."""

    def __init__(
        self,
        api: Api,
        workers: Workers,
        paths: Paths,
        default_image: str,
        metrics: Metrics,
        dataset_folder: Path = DATASET_FOLDER,
    ) -> None:
        self._api = api
        self._workers = workers
        self._paths = paths
        self._default_image = default_image
        self._metrics = metrics
        self._dataset_folder = dataset_folder
        self._loops: dict[str, tuple[PoolLoop, asyncio.Task[None]]] = {}
        self._resync_due_at = time.monotonic()

    def touch(self, name: str) -> None:
        """Something about that pool changed. A label may name any pool, or none."""
        if not name:
            return
        running = self._loops.get(name)
        if running is None or running[1].done():
            loop = PoolLoop(
                self._api,
                self._workers,
                self._paths,
                name,
                self._default_image,
                self._metrics,
                self._dataset_folder,
            )
            task = asyncio.create_task(loop.run(), name=f"pool {name}")
            self._loops[name] = (loop, task)
            return
        running[0].wake()

    async def resync(self) -> None:
        """Lists the pools for ever, so that a watch that went silent hides none."""
        backoff = Backoff(most_seconds=RESYNC_SECONDS)
        while True:
            try:
                names = {pool["metadata"]["name"] for pool in await self._api.list(self._paths.pools())}
                self._reap(names)
                for name in names:
                    if name not in self._loops or self._loops[name][1].done():
                        self.touch(name)
                backoff.reset()
                delay = RESYNC_SECONDS
            except Exception as error:
                # No answer, or none of the API's: the loops go on by themselves meanwhile.
                self._metrics.resync_errors.inc()
                log.warning("resync_failed", error=f"{type(error).__name__}: {error}"[:500], failures=backoff.failures)
                delay = backoff.next_seconds(error.retry_after_seconds if isinstance(error, ApiError) else 0.0)
            self._resync_due_at = time.monotonic() + delay
            await asyncio.sleep(delay)

    def _reap(self, names: set[str]) -> None:
        for name, (_, task) in list(self._loops.items()):
            if task.done() and name not in names:
                del self._loops[name]
                self._metrics.forget(name)

    def problem(self) -> str:
        """Why a restart might help: a loop that does not get on. An API server that is away is none, nor a pool that cannot be read."""
        now = time.monotonic()
        if now - self._resync_due_at > STUCK_AFTER_SECONDS:
            return "the list of pools is not asked for any more"
        for name, (loop, task) in self._loops.items():
            if not task.done() and now - loop.due_at > STUCK_AFTER_SECONDS:
                return f"the loop of pool {name} has not finished a pass for too long"
        return ""

    async def close(self) -> None:
        """Ends all loops; a pass under way is cut, which is safe at any point."""
        tasks = [task for _, task in self._loops.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
