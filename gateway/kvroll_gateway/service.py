"""One gateway put together: table, workers, routes; `main` and `kvroll serve` run it."""

import asyncio
import secrets
import socket
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import structlog
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from kvroll_gateway.metrics import GatewayMetrics
from kvroll_gateway.openai.app import make_app
from kvroll_gateway.routing.fleet import Fleet
from kvroll_gateway.routing.liveness import Patience
from kvroll_gateway.routing.workers import static_targets
from kvroll_gateway.sessions.phases import Failure
from kvroll_gateway.sessions.table import SessionTable
from kvroll_gateway.sessions.token import SessionKey
from kvroll_gateway.settings import GatewaySettings

log = structlog.get_logger(__name__)


def draw_gateway_id() -> str:
    """This process's name in epochs: the host's, without dots (they part an SSE id), and a random end."""
    return f"{socket.gethostname().replace('.', '-')}-{secrets.token_hex(4)}"


class Gateway:
    """An async context: inside it the gateway follows its workers and serves `app`.

    Raises:
        OSError, ValueError: the session key file is unreadable or too short.
    """

    def __init__(self, settings: GatewaySettings, gateway_id: str | None = None) -> None:
        self.settings = settings
        self.gateway_id = gateway_id or draw_gateway_id()
        self.key = SessionKey.load(settings.session_key_file)
        self.metrics_series = GatewayMetrics()
        self.registry: CollectorRegistry = self.metrics_series.registry
        self.table = SessionTable(settings, self.gateway_id, self.metrics_series)
        patience = Patience(settings.worker_lost_seconds, settings.worker_silent_seconds)
        self.fleet = Fleet(self.gateway_id, self.table, self.metrics_series, patience)
        self.table.bind(self.fleet)
        self.app: Starlette = make_app(self)
        self._draining = False
        self._stack = AsyncExitStack()

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def ready(self) -> bool:
        return self.fleet.discovered

    def models(self) -> list[str]:
        return self.fleet.models()

    def max_model_len(self, model: str) -> int | None:
        return self.fleet.max_model_len(model)

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self.fleet.close)
        self._start(self.table.run(), "sessions")
        if self.settings.workers:
            self.fleet.update(static_targets(self.settings.workers))
        elif self.settings.namespace is not None:
            from kvroll_gateway.routing.pods import (  # imports a large client, only where it is used
                follow_pods,
                load_config,
            )

            await load_config()
            self._start(
                follow_pods(self.settings.namespace, self.fleet.update, self.metrics_series.pod_watch_failures.inc),
                "pods",
            )
        log.info("gateway_started", gateway_id=self.gateway_id)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def drain(self) -> int:
        """Refuses new sessions and waits until the open ones ended; returns how many had not within `drain_seconds`."""
        self._draining = True
        log.info("gateway_draining", sessions=self.table.live)
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                while self.table.live:
                    await asyncio.sleep(0.1)
        except TimeoutError:
            log.warning("drain_deadline", sessions=self.table.live)
        return self.table.live

    def end_sessions(self) -> int:
        """Refuses new sessions, and ends the open ones with a typed error; returns how many there were."""
        self._draining = True
        left = self.table.end_all(Failure("gateway_stopping", "the gateway stops before the answer is complete"))
        if left:
            log.warning("sessions_ended_by_shutdown", sessions=left)
        return left

    def _start(self, work: "asyncio._CoroutineLike[None]", name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_report_crash)

        async def stop() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(stop)


def _report_crash(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        log.critical("background_task_crashed", task=task.get_name(), error=repr(task.exception()))
