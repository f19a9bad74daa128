"""The gateway process: flags, logging, signals."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from kvroll_gateway.service import Gateway
from kvroll_gateway.serving import Listener, until_told
from kvroll_gateway.settings import GatewaySettings

EXIT_CANNOT_START = 2

log = structlog.get_logger(__name__)


def parse_args(arguments: Sequence[str] | None = None) -> GatewaySettings:
    """The settings that the command line asks for."""
    default = GatewaySettings()
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
    add(
        "--body-seconds",
        type=float,
        default=default.body_seconds,
        help="how long the body of a request may take to arrive",
    )
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
    return GatewaySettings(workers=tuple(options.worker), **fields)


async def serve(settings: GatewaySettings) -> int:
    """Runs the gateway until SIGTERM or SIGINT and its streams' end; a second signal ends them.

    Raises:
        OSError, ValueError: the address is taken, or the session key is of no use.
    """
    async with Gateway(settings) as gateway, Listener(gateway, settings.host, settings.port) as listener:
        log.info("gateway_serving", host=listener.host, port=listener.port)  # port 0 asked for a free one
        await until_told(gateway, listener)
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
    try:
        raise SystemExit(asyncio.run(serve(settings)))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_CANNOT_START) from None
