"""HTTP requests of gate sources: JSON or text in, a typed error otherwise."""

import json
from typing import Any

import aiohttp

from kvroll_operator.gate.finding import GateSourceError

MOST_BYTES = 16 << 20


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
            GateSourceError: unreachable, not a 2xx, too long, or no JSON.
        """
        text = await self.text(method, url, **request)
        try:
            return json.loads(text)
        except ValueError as error:
            raise GateSourceError(f"{url}: expected JSON, found something else") from error

    async def text(self, method: str, url: str, **request: Any) -> str:
        """The answer's text.

        Raises:
            GateSourceError: unreachable, not a 2xx, too long, or no UTF-8.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        try:
            async with self._session.request(method, url, **request) as response:
                body = await response.content.read(MOST_BYTES + 1)
                while not response.content.at_eof() and len(body) <= MOST_BYTES:
                    body += await response.content.read(MOST_BYTES + 1 - len(body))
                status = response.status
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
