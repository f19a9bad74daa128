"""The worker's process: load the model, serve, and leave in order on SIGTERM."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import psutil
import structlog

from kvroll.v1 import common_pb2 as pb
from kvroll_worker.config import WorkerConfig, parse
from kvroll_worker.engine.machine import memory_limit_bytes
from kvroll_worker.errors import ConfigError
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.port import EnginePort
from kvroll_worker.request import EngineError
from kvroll_worker.serve import device_counters
from kvroll_worker.serve.health import Health, HealthServer
from kvroll_worker.serve.instance.calibrating import calibrate
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.serve.metrics import Metrics
from kvroll_worker.serve.server import CannotListenError, WorkerServer

if TYPE_CHECKING:
    from kvroll_worker.engine.calibration import Calibration

EXIT_CANNOT_LISTEN = 1
EXIT_CANNOT_FIT = 2
EXIT_ENGINE_CRASHED = 70
_POLL_SECONDS = 0.2
_log = structlog.get_logger("kvroll.worker")


def main(arguments: list[str] | None = None) -> int:
    """Runs a worker until SIGTERM; returns the exit code (2: the spec cannot run or fit, with the arithmetic on stderr)."""
    _log_json()
    try:
        config = parse(arguments)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CANNOT_FIT
    metrics = Metrics(config.model_name)
    try:
        http = HealthServer(config.host, config.http_port, Health(), metrics.registry)
    except OSError as error:
        return _cannot_listen(
            f"--http-port: cannot listen on {config.host}:{config.http_port}: {error.strerror or error}"
        )
    http.start()
    try:
        engine, calibration = _load(config)
    except (EngineError, ValueError) as error:  # BudgetError, unsupported models and formats are ValueErrors
        print(f"error: {error}", file=sys.stderr)
        http.stop()
        return EXIT_CANNOT_FIT
    print(engine.budget, file=sys.stderr, flush=True)
    try:
        return asyncio.run(_serve(config, engine, calibration, http, metrics))
    except CannotListenError as error:
        return _cannot_listen(f"--grpc-port: {error}")
    finally:
        http.stop()


def _cannot_listen(why: str) -> int:
    print(f"error: {why}; choose another port", file=sys.stderr, flush=True)
    return EXIT_CANNOT_LISTEN


def _load(config: WorkerConfig) -> "tuple[EnginePort, Calibration | None]":
    # Here and not at the top: torch takes seconds to import, and a wrong flag should not.
    from kvroll_worker.engine.calibration import Calibration
    from kvroll_worker.engine.engine import Engine, EngineConfig

    began = time.monotonic()
    optional = {} if config.threads is None else {"threads": config.threads}
    engine = Engine(
        EngineConfig(
            model_dir=config.model_dir,
            precision=config.precision,
            max_model_len=config.max_model_len,
            kv_memory_bytes=config.kv_memory_bytes,
            max_sessions=config.max_sessions,
            max_batch_tokens=config.max_batch_tokens,
            ops=config.ops,
            prefix_cache=config.prefix_cache,
            spill_memory_bytes=config.spill_memory_bytes,
            **optional,
        )
    )
    _log.info("model loaded", seconds=round(time.monotonic() - began, 2), model=config.model_name)
    return engine, Calibration(engine.ops, engine.shape) if config.measure_device else None


async def _serve(
    config: WorkerConfig, engine: EnginePort, calibration: "Calibration | None", http: HealthServer, metrics: Metrics
) -> int:
    ledger = Ledger(
        max_unacknowledged=config.max_unacknowledged,
        orphan_lease_seconds=config.orphan_lease_seconds,
        reservation_lease_seconds=config.reservation_lease_seconds,
    )
    ref = pb.WorkerRef(worker_id=config.worker_id, instance_id=config.instance_id, address=config.peer_host)
    host = WorkerHost(engine, ref, config.model_name, ledger, metrics, _crash)
    server = WorkerServer(host, config.max_sessions)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _on_sigterm, stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, _on_sigterm, stop)
    if config.leave_with_stdin:
        threading.Thread(target=_leave_with_stdin, args=(asyncio.get_running_loop(), stop), daemon=True).start()
    port = await server.start(config.host, config.grpc_port)
    host.set_admission(config.admit)
    loop = asyncio.get_running_loop()
    http.health.serving(host, lambda: server.report_json(loop))
    _log.info("serving", grpc_port=port, http_port=http.port, instance=config.instance_id, admitting=host.admitting)
    if calibration is not None:
        host.tasks.spawn(calibrate(host, calibration, memory_limit_bytes() - psutil.Process().memory_info().rss))
    # A CPU worker on a node with GPUs is not what their counters count.
    if host.descriptor.compute_capability and (counters := device_counters.DeviceCounters.find()) is not None:
        host.tasks.spawn(device_counters.watch(counters, metrics.wall))
    await stop.wait()
    await _finish(host, config.finish_seconds)
    await server.stop()
    return 0


async def _finish(host: WorkerHost, seconds: float) -> None:
    """Lets running sessions end within the termination grace; a gateway replays elsewhere what is left when the worker goes."""
    host.set_admission(False)
    deadline = time.monotonic() + seconds
    while host.ledger.sessions and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
    _log.info("leaving", sessions_left=len(host.ledger.sessions))


def _on_sigterm(stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(128 + signal.SIGTERM)  # asked twice: at once
    stop.set()


def _leave_with_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # closed; or the loop ended meanwhile
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stop.set)


def _crash(error: BaseException) -> None:
    """The engine's state is unknown: no session can be trusted, so the process ends and the gateways replay."""
    _log.critical("the engine crashed", error=f"{type(error).__name__}: {error}", exc_info=error)
    sys.stderr.flush()
    os._exit(EXIT_ENGINE_CRASHED)


def _log_json() -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
