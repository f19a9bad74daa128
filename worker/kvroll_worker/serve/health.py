"""Health for the kubelet and numbers for Prometheus, on threads of their own: they answer also while the event loop is stuck."""

import threading
import time
from collections.abc import Callable, Iterable
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from kvroll_worker.serve.instance.host import WorkerHost

STUCK_STEP_SECONDS = 300.0
STUCK_LOOP_SECONDS = 30.0


class Health:
    """Liveness from real progress, readiness from the model being loaded and served; a drain changes neither."""

    def __init__(self) -> None:
        self._host: WorkerHost | None = None
        self._report: Callable[[], str] | None = None
        self._loading_since = time.monotonic()

    def serving(self, host: WorkerHost, report: Callable[[], str]) -> None:
        """The model is loaded and the gRPC server listens; `report` may be called from any thread."""
        self._host, self._report = host, report

    def report(self) -> str | None:
        """The worker's report as JSON; None while it does not serve, or its event loop does not answer."""
        try:
            return self._report() if self._report is not None else None
        except TimeoutError:
            return None

    def ready(self) -> tuple[bool, str]:
        """Whether sessions can be served, and why not."""
        host = self._host
        if host is None:
            return False, f"the model is loading for {time.monotonic() - self._loading_since:.0f} s"
        return (True, "serving") if host.loop.alive else (False, "the engine has stopped")

    def live(self) -> tuple[bool, str]:
        """Whether the process makes progress, and what is stuck."""
        host = self._host
        if host is None:
            return True, "loading"
        now = time.monotonic()
        if not host.loop.alive:
            return False, "the engine's thread has ended"
        began = host.loop.step_began
        if began is not None and now - began > STUCK_STEP_SECONDS:
            return False, f"one engine step runs for {now - began:.0f} s"
        if now - host.ticked_at > STUCK_LOOP_SECONDS:
            return False, f"the event loop stands still for {now - host.ticked_at:.0f} s"
        return True, "alive"


class HealthServer:
    """`/healthz`, `/readyz`, `/metrics` and `/report` over HTTP."""

    def __init__(self, host: str, port: int, health: Health, registry: CollectorRegistry) -> None:
        self.health = health
        app = _app(health, registry)
        self._server = make_server(host, port, app, server_class=ThreadingWSGIServer, handler_class=_QuietHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Probes come every second: they are not news."""


def _app(health: Health, registry: CollectorRegistry) -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
    metrics = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            # As text whatever is asked for: asked for OpenMetrics, the library writes `vllm_…` where vLLM's dashboards look for `vllm:…`.
            page: Iterable[bytes] = metrics({**environ, "HTTP_ACCEPT": "text/plain"}, start_response)
            return page
        if path == "/report":
            return _report(health, start_response)
        checks = {"/healthz": health.live, "/readyz": health.ready}
        if path not in checks:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"expected /healthz, /readyz, /metrics or /report\n"]
        fine, text = checks[path]()
        start_response("200 OK" if fine else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [f"{text}\n".encode()]

    return app


def _report(health: Health, start_response: StartResponse) -> Iterable[bytes]:
    """What GetReport answers, as JSON, for whoever reaches a Pod only through the API server, which proxies no gRPC."""
    text = health.report()
    if text is None:
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"not serving\n"]
    start_response("200 OK", [("Content-Type", "application/json")])
    return [text.encode()]
