"""`/healthz` from real progress, and `/metrics`."""

import asyncio
import time
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from kvroll_operator.metrics import Metrics

LAG_PERIOD_SECONDS = 1.0


async def serve(host: str, port: int, metrics: Metrics, problem: Callable[[], str]) -> web.AppRunner:
    """Starts the server; `problem` says why the process is not well, empty while it is."""

    async def healthz(_: web.Request) -> web.Response:
        reason = problem()
        return web.Response(text=reason or "ok", status=503 if reason else 200)

    async def scrape(_: web.Request) -> web.Response:
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", scrape)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


async def measure_lag(metrics: Metrics) -> None:
    """Shows for ever how late the event loop wakes."""
    while True:
        due = time.monotonic() + LAG_PERIOD_SECONDS
        await asyncio.sleep(LAG_PERIOD_SECONDS)
        metrics.loop_lag_seconds.set(max(0.0, time.monotonic() - due))
