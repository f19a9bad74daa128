"""The set of pool loops: one a pool, started when it is seen, ended when it is gone."""

import asyncio
import time
from pathlib import Path

import structlog

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
        self._listed_at = time.monotonic()

    def touch(self, name: str) -> None:
        """Something about that pool changed."""
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
        while True:
            try:
                names = {pool["metadata"]["name"] for pool in await self._api.list(self._paths.pools())}
                self._listed_at = time.monotonic()
            except (ApiError, OSError, TimeoutError) as error:
                log.warning("resync_failed", error=str(error)[:500])
                await asyncio.sleep(2.0)
                continue
            self._reap(names)
            for name in names - self._loops.keys():
                self.touch(name)
            await asyncio.sleep(RESYNC_SECONDS)

    def _reap(self, names: set[str]) -> None:
        for name, (_, task) in list(self._loops.items()):
            if task.done() and name not in names:
                task.result()
                del self._loops[name]
                self._metrics.forget(name)

    def problem(self) -> str:
        """Why the process is not well: a loop that crashed or has not finished a pass, or no list of the pools for too long."""
        now = time.monotonic()
        if now - self._listed_at > RESYNC_SECONDS + STUCK_AFTER_SECONDS:
            return "the pools could not be listed for too long"
        for name, (loop, task) in self._loops.items():
            if task.done() and not task.cancelled() and task.exception() is not None:
                return f"the loop of pool {name} crashed: {task.exception()}"
            if not task.done() and now - loop.finished_at > STUCK_AFTER_SECONDS:
                return f"the loop of pool {name} has not finished a pass for too long"
        return ""

    async def close(self) -> None:
        """Ends all loops; a pass under way is cut, which is safe at any point."""
        tasks = [task for _, task in self._loops.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
