"""The HTTP routes: OpenAI's endpoints, health and metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from kvroll_gateway.openai.bodies import read_json
from kvroll_gateway.openai.errors import OpenAiError
from kvroll_gateway.openai.requests import ChatRequest, CompletionRequest, parse
from kvroll_gateway.openai.shapes import ChatShape, CompletionShape, Shape
from kvroll_gateway.openai.stream import SessionResponse, StreamedAnswer
from kvroll_gateway.openai.submit import make_submits
from kvroll_gateway.sessions.session import GatewaySession, SessionFailedError
from kvroll_gateway.sessions.table import SessionTable
from kvroll_gateway.sessions.token import SessionKey
from kvroll_gateway.settings import GatewaySettings

Result = TypeVar("Result")
log = structlog.get_logger(__name__)


class Host(Protocol):
    """What the routes need of the gateway around them."""

    settings: GatewaySettings
    table: SessionTable
    key: SessionKey
    registry: CollectorRegistry

    @property
    def draining(self) -> bool: ...
    @property
    def ready(self) -> bool: ...
    def models(self) -> list[str]: ...
    def max_model_len(self, model: str) -> int | None: ...


class ClientGoneError(Exception):
    """The client closed its connection before there was an answer."""


def make_app(host: Host) -> Starlette:
    """The ASGI application of one gateway."""
    routes = Routes(host)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
            Route("/v1/completions", routes.complete, methods=["POST"]),
            Route("/v1/models", routes.list_models, methods=["GET"]),
            Route("/v1/models/{model:path}", routes.one_model, methods=["GET"]),
            Route("/healthz", routes.healthz, methods=["GET"]),
            Route("/readyz", routes.readyz, methods=["GET"]),
            Route("/health", routes.readyz, methods=["GET"]),  # vLLM's name, which load tools ask before they begin
            Route("/metrics", routes.metrics, methods=["GET"]),
        ],
        exception_handlers={
            OpenAiError: _api_error,
            HTTPException: _http_error,
            ClientDisconnect: _client_gone,
            Exception: _crash,
        },
    )


class Routes:
    """The handlers, bound to their gateway."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def chat(self, http: Request) -> Response:
        body = await self._body(http)
        return await self._generate(http, parse(ChatRequest, body), ChatShape())

    async def complete(self, http: Request) -> Response:
        body = await self._body(http)
        return await self._generate(http, parse(CompletionRequest, body), CompletionShape())

    async def list_models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model(name) for name in self._host.models()]})

    async def one_model(self, http: Request) -> Response:
        name = http.path_params["model"]
        if name not in self._host.models():
            raise OpenAiError(404, f"the model {name!r} is not served here", code="model_not_found", param="model")
        return JSONResponse(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        length = self._host.max_model_len(name)
        return {"id": name, "object": "model", "created": 0, "owned_by": "kvroll", "max_model_len": length}

    async def healthz(self, _: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(self, _: Request) -> Response:
        if self._host.draining:
            return PlainTextResponse("draining", status_code=503)
        return (
            PlainTextResponse("ok")
            if self._host.ready
            else PlainTextResponse("workers not listed yet", status_code=503)
        )

    async def metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._host.registry), media_type=CONTENT_TYPE_LATEST)

    async def _body(self, http: Request) -> Any:
        if self._host.draining:
            raise OpenAiError(
                503, "this gateway is shutting down; try again", code="gateway_draining", kind="server_error"
            )
        if "last-event-id" in http.headers:
            raise OpenAiError(
                501,
                "streams cannot be resumed yet; send the request again",
                code="resume_not_supported",
                param="Last-Event-ID",
            )
        return await read_json(http, self._host.settings.body_seconds)

    async def _generate(self, http: Request, request: ChatRequest | CompletionRequest, shape: Shape) -> Response:
        submits = make_submits(request, self._host.settings.default_max_tokens)
        sessions = [self._host.table.open(submit) for submit in submits]
        answer = StreamedAnswer(sessions, request, shape, self._host.key.sign(sessions[0].session_id))
        handed_over = False
        try:
            await _while_connected(http, _all_admitted(sessions))
            if request.stream:
                handed_over = True
                return SessionResponse(sessions, answer.events(), self._host.settings.keep_alive_seconds)
            return JSONResponse(await _while_connected(http, answer.whole()))
        except SessionFailedError as error:
            raise OpenAiError.of(error.failure) from None
        except ClientGoneError:
            return _gone(sessions)
        finally:
            if not handed_over:
                for session in sessions:
                    session.cancel("client disconnected")  # nothing if it has ended


async def _all_admitted(sessions: Sequence[GatewaySession]) -> None:
    for session in sessions:
        await session.admitted()


async def _while_connected(http: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`, unless the client goes first.

    Raises:
        ClientGoneError: it did.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(http.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _gone(sessions: Sequence[GatewaySession]) -> Response:
    log.info("client_gone", session_ids=[session.session_id for session in sessions])
    return Response(status_code=499)


async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, OpenAiError)
    return error.response()


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return OpenAiError(
        error.status_code, str(error.detail), code="not_found" if error.status_code == 404 else "http_error"
    ).response(error.headers)


async def _client_gone(http: Request, _: Exception) -> Response:
    log.info("client_gone", path=http.url.path)
    return Response(status_code=499)


async def _crash(_: Request, error: Exception) -> Response:
    log.error("request_crashed", error=repr(error))
    return OpenAiError(
        500, "the gateway failed; its log says why", code="internal_error", kind="server_error"
    ).response()
