"""A TCP proxy on loopback whose link can drop everything without closing anything, as a network does whose packets are lost."""

import asyncio
from types import TracebackType
from typing import Self


class StallingProxy:
    """Forwards to a port of this machine until `stall()`; from then on it takes bytes from nobody and gives none, but connects.

    `go_on()` forwards again, what was sent meanwhile included.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.num_connections = 0
        self._target_port = target_port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stall(self) -> None:
        self._flowing.clear()

    def go_on(self) -> None:
        self._flowing.set()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._flowing.wait()
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(self._copy(reader, there_writer), self._copy(there_reader, writer))
        finally:
            for one in (writer, there_writer):
                one.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            await self._flowing.wait()  # an end is a packet too
        except OSError:
            pass
        finally:
            writer.close()
