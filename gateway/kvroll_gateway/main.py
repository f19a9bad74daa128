"""The gateway process: flags, logging, signals."""

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Generator, Sequence
from pathlib import Path

import structlog
import uvicorn
from sse_starlette.sse import AppStatus

from kvroll_gateway.service import Gateway
from kvroll_gateway.settings import Settings

_EXIT_SECONDS = 5

log = structlog.get_logger(__name__)


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: SIGTERM must first let the streams end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Binds, and says where: port 0 asks for a free one."""
        await super().startup(sockets)
        for bound in self.servers[0].sockets if self.started else ():
            log.info("gateway_serving", host=bound.getsockname()[0], port=bound.getsockname()[1])


def parse_args(arguments: Sequence[str] | None = None) -> Settings:
    """The settings that the command line asks for."""
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m kvroll_gateway", description="Holds clients' streams; routes to workers."
    )
    add = parser.add_argument
    add("--namespace", help="follow the worker Pods of this namespace")
    add(
        "--worker",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a worker, instead of following Pods; repeatable",
    )
    add("--host", default=default.host)
    add("--port", type=int, default=default.port)
    add(
        "--worker-lost-seconds",
        type=float,
        default=default.worker_lost_seconds,
        help="a worker that refuses is lost after this",
    )
    add(
        "--worker-silent-seconds",
        type=float,
        default=default.worker_silent_seconds,
        help="a silent worker is lost after this",
    )
    add(
        "--replay-deadline-seconds",
        type=float,
        default=default.replay_deadline_seconds,
        help="how long a session seeks a worker",
    )
    add(
        "--replay-limit",
        type=int,
        default=default.replay_limit,
        help="how often a session is replayed whose workers die under it, before it counts as what kills them",
    )
    add(
        "--quarantine-seconds",
        type=float,
        default=default.quarantine_seconds,
        help="how long a session that may have ended its worker is kept from the last healthy one",
    )
    add("--drain-seconds", type=float, default=default.drain_seconds, help="how long SIGTERM waits for open streams")
    add("--session-key-file", type=Path, help="key that signs session tokens; random at each start without it")
    add("--log-frames", type=int, default=default.log_frames, help="unread tokens at which a slow client is cut off")
    add(
        "--default-max-tokens",
        type=int,
        default=default.default_max_tokens,
        help="for chats that name no limit; 0 (the default): as many as fit, as vLLM does",
    )
    options = parser.parse_args(arguments)
    if bool(options.worker) == bool(options.namespace):
        parser.error("expected either --namespace or --worker, found " + ("both" if options.worker else "neither"))
    fields = {name: value for name, value in vars(options).items() if name != "worker"}
    return Settings(workers=tuple(options.worker), **fields)


async def serve(settings: Settings) -> int:
    """Runs the gateway until SIGTERM or SIGINT and its streams' end; a second signal ends at once."""
    AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]  # it would cut every open stream at SIGTERM
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with Gateway(settings) as gateway:
        config = uvicorn.Config(
            gateway.app, settings.host, settings.port, log_config=None, access_log=False, lifespan="off",
            timeout_graceful_shutdown=_EXIT_SECONDS, timeout_keep_alive=75,
        )  # fmt: skip
        server = Server(config)

        def on_signal() -> None:
            if stop.is_set():
                server.should_exit = server.force_exit = True
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        serving = asyncio.create_task(server.serve())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            draining = asyncio.create_task(gateway.drain())
            await asyncio.wait({serving, draining}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            server.should_exit = True
        stopping.cancel()
        await serving
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m kvroll_gateway`: see `--help`."""
    settings = parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("kubernetes").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    raise SystemExit(asyncio.run(serve(settings)))
