"""The agent's side of the API server: plain dicts over HTTP."""

import json
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import aiohttp

Json = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
REQUEST_SECONDS = 10.0
_WATCH_SECONDS = 240
_LINE_BYTES = 1 << 22


class NodeApiError(Exception):
    """The server refused; `status` is the HTTP code."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path}: the API server answered {status}: {message}")
        self.status = status
        # A uid cannot change: a 422 about it says that another object has the name by now.
        self.is_gone = status in (404, 409) or (status == 422 and "metadata.uid" in message)


UNREACHABLE = (NodeApiError, aiohttp.ClientError, OSError, TimeoutError, ValueError)
"""What a request raises that is refused or gets no whole answer."""


class Client:
    """One connection pool to one API server."""

    def __init__(self, server: str, token: str, tls: Any = None) -> None:
        self._server = server.rstrip("/")
        connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True)
        self._http = aiohttp.ClientSession(
            connector=connector,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            read_bufsize=_LINE_BYTES,
            trust_env=False,  # a proxy has no business on loopback
        )

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connections."""
        await self._http.close()

    async def get(self, path: str, timeout_seconds: float = REQUEST_SECONDS) -> Json:
        """Reads an object or a list."""
        return await self._call("GET", path, None, "", timeout_seconds)

    async def create(self, path: str, body: Json) -> Json:
        """Creates an object, or calls a subresource such as a binding."""
        return await self._call("POST", path, body, "application/json")

    async def patch(self, path: str, body: Json) -> Json:
        """Merge patch; a uid in its metadata makes it conditional."""
        return await self._call("PATCH", path, body, MERGE_PATCH)

    async def apply(self, path: str, body: Json, manager: str) -> Json:
        """Server-side apply; fields that nobody knows are refused."""
        query = f"?fieldManager={manager}&force=true&fieldValidation=Strict"
        return await self._call("PATCH", path + query, body, "application/apply-patch+yaml")

    async def delete(self, path: str, *, uid: str, grace_seconds: int | None = None) -> None:
        """Deletes exactly that object."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self._call("DELETE", path, body, "application/json")

    async def watch(self, path: str, version: str) -> AsyncIterator[tuple[str, Json]]:
        """(event type, object) from that version on, until the server ends it."""
        url = f"{self._server}{path}?watch=1&timeoutSeconds={_WATCH_SECONDS}&resourceVersion={version}"
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_SECONDS, sock_read=_WATCH_SECONDS + REQUEST_SECONDS
        )
        async with self._http.get(url, timeout=timeout) as response:
            if response.status != 200:
                raise NodeApiError("GET", path, response.status, (await response.text())[:200])
            async for line in response.content:
                event = json.loads(line)
                yield event["type"], event["object"]

    async def _call(
        self, method: str, path: str, body: Json | None, content_type: str, timeout_seconds: float = REQUEST_SECONDS
    ) -> Json:
        headers = {"Content-Type": content_type} if content_type else {}
        data = None if body is None else json.dumps(body)
        timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        async with self._http.request(
            method, self._server + path, data=data, headers=headers, timeout=timeout
        ) as response:
            text = await response.text()
            if response.status >= 400:
                try:
                    message = str(json.loads(text).get("message", text))
                except ValueError:
                    message = text
                raise NodeApiError(method, path, response.status, message[:1000])
            answer: Json = json.loads(text) if text else {}
            return answer
