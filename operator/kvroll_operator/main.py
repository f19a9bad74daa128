"""The operator's process: kopf watches, each pool's loop decides, a small server shows health and metrics."""

import argparse
import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import kopf
import structlog

from kvroll_operator.api import DRAINS, GROUP, POOLS, VERSION
from kvroll_operator.api.names import LABEL
from kvroll_operator.backoff import Backoff
from kvroll_operator.cluster.client import Api
from kvroll_operator.cluster.lease import LeaderLease
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.cluster.workers import OperatorEpoch, Workers
from kvroll_operator.health import measure_lag, serve
from kvroll_operator.metrics import Metrics
from kvroll_operator.pool_loop import DATASET_FOLDER
from kvroll_operator.pools import Pools

log = structlog.get_logger()


def parse_args(argv: list[str]) -> argparse.Namespace:
    """Flags."""
    parser = argparse.ArgumentParser(
        prog="python -m kvroll_operator", description="Operator of kvroll's InferencePools in one namespace."
    )
    parser.add_argument(
        "--namespace", default=os.environ.get("POD_NAMESPACE"), help="namespace to watch; default: env POD_NAMESPACE"
    )
    parser.add_argument(
        "--worker-image", default="", help="image of workers of a pool that names none and has no revision yet"
    )
    parser.add_argument(
        "--dataset-folder",
        type=Path,
        default=DATASET_FOLDER,
        help=f"the only folder whose files a pool's gate.dataset.uri may name as file://; default: {DATASET_FOLDER}",
    )
    parser.add_argument(
        "--lease",
        default="kvroll-operator",
        help="Lease that the one operator of a namespace that acts holds; empty: none, where no second one can run; default: %(default)s",
    )
    parser.add_argument("--host", default="0.0.0.0", help="address of /healthz and /metrics")
    parser.add_argument("--port", type=int, default=8081, help="port of /healthz and /metrics")
    args = parser.parse_args(argv)
    if not args.namespace:
        parser.error("expected --namespace or env POD_NAMESPACE, found neither")
    return args


def settings() -> kopf.OperatorSettings:
    """kopf's settings: it writes nothing, so what matters is that its watches notice when they die."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.peering.standalone = True
    made.scanning.disabled = True
    made.watching.server_timeout = 300
    made.watching.connect_timeout = 10
    made.networking.request_timeout = 30
    made.queueing.error_delays = (1, 1, 2, 3, 5)
    made.persistence.finalizer = f"{GROUP}/kopf"
    made.process.ultimate_exiting_timeout = None
    return made


def registry(pools: Pools) -> kopf.OperatorRegistry:
    """Watches whose events only name the pool to look at."""
    made = kopf.OperatorRegistry()

    async def pool_changed(name: str | None, **_: Any) -> None:
        pools.touch(str(name))

    async def owned_changed(labels: kopf.Labels, **_: Any) -> None:
        pools.touch(str(labels.get(f"{LABEL}pool", "")))

    @kopf.on.login(registry=made)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    ours = {f"{LABEL}pool": kopf.PRESENT}
    kopf.on.event(GROUP, VERSION, POOLS, registry=made)(pool_changed)
    kopf.on.event(GROUP, VERSION, DRAINS, labels=ours, registry=made)(owned_changed)
    kopf.on.event("", "v1", "pods", labels=ours, registry=made)(owned_changed)
    kopf.on.event("apps", "v1", "controllerrevisions", labels=ours, registry=made)(owned_changed)
    return made


@dataclass
class Standby:
    """What /healthz says: an operator that waits for the Lease is well."""

    pools: Pools | None = None

    def problem(self) -> str:
        """Why a restart might help, empty for none."""
        return self.pools.problem() if self.pools else ""


async def run(args: argparse.Namespace) -> None:
    """Runs until SIGTERM, SIGINT, or a part of it fails; the failure ends the process, for the kubelet to start another."""
    metrics, paths, standby = Metrics(), Paths(args.namespace), Standby()
    async with AsyncExitStack() as stack:
        api = await Api.connect(metrics.requested)
        stack.push_async_callback(api.close)
        server = await serve(args.host, args.port, metrics, standby.problem)
        stack.push_async_callback(server.cleanup)
        log.info("started", namespace=args.namespace, port=args.port)
        lease = LeaderLease(api, paths, args.lease, socket.gethostname()) if args.lease else None
        # Without a Lease a later process is a higher epoch.
        workers = Workers(await lease.acquire() if lease else OperatorEpoch("", int(time.time() * 1000)))
        stack.push_async_callback(workers.close)
        if lease:
            stack.push_async_callback(lease.release)
        pools = standby.pools = Pools(api, workers, paths, args.worker_image, metrics, args.dataset_folder)
        stack.push_async_callback(pools.close)
        await _until_stopped(_watch(partial(_watches, pools, args.namespace)), _parts(pools, metrics, workers, lease))
    log.info("stopped")


def _watches(pools: Pools, namespace: str) -> Coroutine[Any, Any, None]:
    return kopf.operator(registry=registry(pools), settings=settings(), namespaces=[namespace], standalone=True)


def _parts(
    pools: Pools, metrics: Metrics, workers: Workers, lease: LeaderLease | None
) -> dict[str, Coroutine[Any, Any, None]]:
    """What goes on beside the watches."""

    def took(epoch: OperatorEpoch) -> None:
        workers.epoch = epoch

    parts = {"resync": pools.resync(), "lag": measure_lag(metrics)}
    return {**parts, "lease": lease.keep(took)} if lease else parts


async def _watch(watching: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """kopf only wakes the loops, which look by themselves, too: where it cannot go on it is begun anew, and the process stays.

    It returns on SIGTERM and SIGINT.
    """
    backoff = Backoff()
    while True:
        try:
            return await watching()
        except Exception as error:
            delay = backoff.next_seconds()
            log.exception(
                "watches_ended", error=f"{type(error).__name__}: {error}"[:500], again_in_seconds=round(delay, 1)
            )
            await asyncio.sleep(delay)


async def _until_stopped(watching: Coroutine[Any, Any, None], parts: dict[str, Coroutine[Any, Any, None]]) -> None:
    """kopf handles SIGTERM and SIGINT and returns then; the other parts never return but by a failure.

    Raises:
        RuntimeError: a part ended by itself.
    """
    kopf_task = asyncio.create_task(watching, name="kopf")
    tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
    await asyncio.wait({kopf_task, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    failed = [task for task in tasks if task.done()]
    for task in tasks if kopf_task.done() else [kopf_task, *tasks]:
        task.cancel()
    await asyncio.gather(kopf_task, *tasks, return_exceptions=True)
    for task in failed:
        raise RuntimeError(f"{task.get_name()} ended without being asked to") from task.exception()
    kopf_task.result()


def main() -> None:
    """Entry point."""
    args = parse_args(sys.argv[1:])
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.JSONRenderer(),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    asyncio.run(run(args))
