"""The HTTP of the dashboard: a page, its script and style, the document once, and the document live. All of it GET."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from importlib.resources import files

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvroll_cli.dashboard.feed import Feed

HOSTS = ["127.0.0.1", "localhost"]
"""Names under which the page may be asked for. Another name that leads here is another site's (DNS rebinding)."""
PING_SECONDS = 15
_PAGE = {
    "": ("index.html", "text/html"),
    "dashboard.css": ("dashboard.css", "text/css"),
    "dashboard.js": ("dashboard.js", "text/javascript"),
    "dom.js": ("dom.js", "text/javascript"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ReadOnly:
    """Refuses every method but GET and HEAD, whatever the path, and puts the page's rules on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what reads."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def ruled(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, ruled)
        else:
            refusal = PlainTextResponse("this page only reads: use GET\n", 405, {"Allow": "GET, HEAD"})
            await refusal(scope, receive, ruled)


def make_app(feed: Feed) -> Starlette:
    """The ASGI application; its lifespan runs the feed."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with feed.running():
            yield

    async def page(http: Request) -> Response:
        name, media_type = _PAGE[http.url.path.removeprefix("/")]
        return Response((files(__package__) / "page" / name).read_bytes(), media_type=media_type)

    async def once(_: Request) -> Response:
        async with aclosing(feed.follow()) as following:
            text = (await following.__anext__())[1]
        return Response(text, media_type="application/json")

    async def live(_: Request) -> Response:
        return EventSourceResponse(_events(feed), ping=PING_SECONDS)

    return Starlette(
        routes=[
            *(Route(f"/{path}", page, methods=["GET"]) for path in _PAGE),
            Route("/pools.json", once, methods=["GET"]),
            Route("/events", live, methods=["GET"]),
        ],
        middleware=[Middleware(ReadOnly), Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
        lifespan=lifespan,
    )


async def _events(feed: Feed) -> AsyncIterator[ServerSentEvent]:
    async with aclosing(feed.follow()) as following:
        async for number, text in following:
            yield ServerSentEvent(text, event="pools", id=str(number), retry=1000)
