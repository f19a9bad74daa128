"""Serves the dashboard on loopback until Ctrl-C."""

import contextlib
import socket

import uvicorn

from kvroll_cli.dashboard.app import make_app
from kvroll_cli.dashboard.feed import Feed, Look

HOST = "127.0.0.1"
_LEAVE_SECONDS = 2
"""How long Ctrl-C waits for open pages."""


def address(listener: socket.socket) -> str:
    """The page's URL."""
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}/"


def server_of(look: Look, interval_seconds: float) -> uvicorn.Server:
    """The server; run it on a bound socket."""
    app = make_app(Feed(look, interval_seconds))
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=_LEAVE_SECONDS
    )
    return uvicorn.Server(config)


def run(look: Look, listener: socket.socket, interval_seconds: float) -> None:
    """Serves until Ctrl-C or SIGTERM."""
    with listener, contextlib.suppress(KeyboardInterrupt):
        server_of(look, interval_seconds).run(sockets=[listener])
