"""Coroutines of this instance that nobody waits for."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import structlog

_log = structlog.get_logger("kvroll.worker.tasks")


class BackgroundTasks:
    """Keeps them alive and logs what ends by an error."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine; its failure is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    async def stop(self) -> None:
        """Cancels all and returns when they have ended."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        with contextlib.suppress(asyncio.CancelledError):
            error = task.exception()
            if error is not None:
                _log.error("a background task failed", error=f"{type(error).__name__}: {error}")
