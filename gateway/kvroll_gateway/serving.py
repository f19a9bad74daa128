"""The HTTP side of a gateway's life: it listens, and when it is told to stop every open answer ends as an answer does."""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
from collections.abc import Generator
from types import TracebackType
from typing import Self

import h11
import uvicorn
from sse_starlette.sse import AppStatus
from uvicorn.protocols.http.h11_impl import H11Protocol

from kvroll_gateway.openai.errors import OpenAiError
from kvroll_gateway.service import Gateway

_FLUSH_SECONDS = 2.0
_STARTUP_POLL_SECONDS = 0.005
_KEEP_ALIVE_SECONDS = 75


class Protocol(H11Protocol):
    """HTTP/1.1 whose own refusals have OpenAI's shape, and whose request heads must come to an end."""

    head_seconds = 60.0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._watch_head()
        else:
            self._forget_head()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP, and closes; a request that was already handed on hears that its client is gone."""
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(OpenAiError(status, msg, code="invalid_http").body()).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: streams end first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Listener:
    """Serves `gateway.app`; an async context. At its end what is still open gets `_FLUSH_SECONDS` to be written, then it is cut.

    Raises:
        OSError: the address is taken, or not this machine's.
    """

    def __init__(self, gateway: Gateway, host: str, port: int, listening: socket.socket | None = None) -> None:
        self._socket = listening if listening is not None else listen(host, port)
        head_seconds = gateway.settings.body_seconds
        kind = type("Protocol", (Protocol,), {"head_seconds": head_seconds})
        config = uvicorn.Config(
            gateway.app, log_config=None, access_log=False, lifespan="off", http=kind, ws="none",
            timeout_graceful_shutdown=10, timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )  # fmt: skip
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None

    @property
    def host(self) -> str:
        return str(self._socket.getsockname()[0])

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def __aenter__(self) -> Self:
        AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]  # it would cut every open stream
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # what strangers send is no news
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http")
        while not self._server.started and not self._serving.done():
            await asyncio.sleep(_STARTUP_POLL_SECONDS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._serving is not None
        self._server.should_exit = True
        await asyncio.wait({self._serving}, timeout=_FLUSH_SECONDS)
        for connection in list(self._server.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()  # its request hears that the client is gone, and ends in order
        await self._serving

    @property
    def ended(self) -> "asyncio.Task[None]":
        """The task that serves; done before its time only where it failed."""
        assert self._serving is not None
        return self._serving


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is a free one.

    Raises:
        OSError: the address is taken, or not this machine's; its text names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listening


async def until_told(gateway: Gateway, listener: Listener, *lives: "asyncio.Task[int]") -> None:
    """Serves until SIGTERM, SIGINT or the end of one of `lives`; then lets streams end, and ends those that do not.

    A first signal refuses new sessions and waits `drain_seconds` for the open ones; a second one does not wait. What is open then, or
    when a life that the sessions need has ended, gets one typed error.
    """
    told, again = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (again if told.is_set() else told).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    stopping = asyncio.create_task(told.wait())
    await asyncio.wait({stopping, listener.ended, *lives}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not any(one.done() for one in (listener.ended, *lives)):
        waits = {asyncio.create_task(gateway.drain()), asyncio.create_task(again.wait())}
        await asyncio.wait({*waits, *lives}, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    gateway.end_sessions()
