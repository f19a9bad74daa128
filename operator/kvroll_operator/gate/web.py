"""HTTP requests of gate sources: JSON or text in, a typed error otherwise."""

import asyncio
import json
from typing import Any

import aiohttp
import structlog

from kvroll_operator.gate.finding import GateSourceError

MOST_BYTES = 16 << 20
CONNECT_PAUSES_SECONDS = (2.0, 5.0, 10.0, 20.0)
"""A service that restarts takes no connection for a while. It has been asked nothing then, so asking again is no second measurement."""
log = structlog.get_logger()


class Web:
    """One session for the runs of a pool, made when it is first needed."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Ends the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def json(self, method: str, url: str, **request: Any) -> Any:
        """The answer as JSON.

        Raises:
            GateSourceError: unreachable for half a minute, not a 2xx, too long, or no JSON.
        """
        text = await self.text(method, url, **request)
        try:
            return json.loads(text)
        except ValueError as error:
            raise GateSourceError(f"{url}: expected JSON, found something else") from error

    async def text(self, method: str, url: str, **request: Any) -> str:
        """The answer's text.

        Raises:
            GateSourceError: unreachable for half a minute, not a 2xx, too long, or no UTF-8.
        """
        try:
            status, body = await self._connected(method, url, **request)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise GateSourceError(f"{url}: no answer: {error or type(error).__name__}") from error
        if not 200 <= status <= 299:
            raise GateSourceError(f"{url}: expected a 2xx answer, found {status}")
        if len(body) > MOST_BYTES:
            raise GateSourceError(f"{url}: expected at most {MOST_BYTES >> 20} MiB, found more")
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise GateSourceError(f"{url}: expected UTF-8 text, found other bytes") from error

    async def _connected(self, method: str, url: str, **request: Any) -> tuple[int, bytes]:
        """Status and body, once it takes the connection."""
        for pause_seconds in CONNECT_PAUSES_SECONDS:
            try:
                return await self._answer(method, url, **request)
            except aiohttp.ClientConnectorError as error:
                log.info("gate_source_unreachable", url=url, error=str(error), again_in_seconds=pause_seconds)
                await asyncio.sleep(pause_seconds)
        return await self._answer(method, url, **request)

    async def _answer(self, method: str, url: str, **request: Any) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        async with self._session.request(method, url, **request) as response:
            body = await response.content.read(MOST_BYTES + 1)
            while not response.content.at_eof() and len(body) <= MOST_BYTES:
                body += await response.content.read(MOST_BYTES + 1 - len(body))
            return response.status, body
