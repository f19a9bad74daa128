"""The ASGI application: who asks, what for, and the answer."""

import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from kvroll_local.api.http import discovery, openapi
from kvroll_local.api.http.answers import answer, refusal
from kvroll_local.api.http.call import PATH, Call
from kvroll_local.api.http.left_out import not_served
from kvroll_local.api.http.resources import ApiResources
from kvroll_local.api.objects.objects import StoredObjects
from kvroll_local.api.objects.refused import Refused

_log = logging.getLogger(__name__)
_Message = MutableMapping[str, Any]
Application = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]


def application(objects: StoredObjects, state: Path, token: str) -> Application:
    """The application over `objects`; every call must bear the token."""
    face = _Face(objects, state, token)

    async def app(
        scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
    ) -> None:
        if scope["type"] != "http":
            raise ValueError(f"expected http, found {scope['type']}")
        response = await face.respond(HttpRequest(scope, receive))
        await response(scope, receive, send)

    return app


class _Face:
    def __init__(self, objects: StoredObjects, state: Path, token: str) -> None:
        self._objects, self._token = objects, token.encode()
        self._resources = ApiResources(objects, state)

    async def respond(self, request: HttpRequest) -> Response:
        began = time.perf_counter()
        try:
            self._check_token(request)
            response = await self._route(request)
        except Refused as error:
            response = refusal(error)
        except ClientDisconnect:
            response = Response(status_code=499)
        except Exception as error:
            _log.exception("%s %s", request.method, request.url.path)
            response = refusal(
                Refused(500, "InternalError", f"Internal error occurred: {type(error).__name__}: {error}")
            )
        _log.debug(
            "%s %s %d %.1f ms", request.method, request.url, response.status_code, 1e3 * (time.perf_counter() - began)
        )
        return response

    def _check_token(self, request: HttpRequest) -> None:
        scheme, _, found = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(found.strip().encode(), self._token):
            raise Refused(401, "Unauthorized", "Unauthorized")

    async def _route(self, request: HttpRequest) -> Response:
        path = request.url.path.rstrip("/") or "/"
        if path in ("/healthz", "/readyz", "/livez"):
            return PlainTextResponse("ok")
        document = discovery.discovered(self._objects.catalog, path)
        if path == "/openapi/v3":
            document = openapi.index(self._objects.catalog)
        elif path.startswith("/openapi/v3/"):
            document = openapi.described(self._objects.catalog, path.removeprefix("/openapi/v3/"))
        if document is not None:
            if request.method != "GET":
                raise Refused(405, "MethodNotAllowed", f"{request.method} is not supported on {path}")
            return answer(document)
        call = self._call(request, path)
        response = await self._resources.respond(call)
        for text in call.warnings:
            response.headers.append("Warning", '299 - "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
        return response

    def _call(self, request: HttpRequest, path: str) -> Call:
        found = PATH.fullmatch(path)
        if not found:
            what = f"the server could not find the requested resource: there is nothing at {path} of kvroll's embedded API server"
            raise Refused(404, "NotFound", what)
        group, version = found["group"] or "", found["core"] or found["version"]
        kind = self._objects.catalog.find(group, version, found["plural"])
        if kind is None or (found["namespace"] and not kind.namespaced):
            raise not_served(self._objects.catalog, group, version, found["plural"])
        return Call(
            request, kind, found["namespace"] or "", found["name"] or "", found["sub"] or "", found["rest"] or ""
        )
