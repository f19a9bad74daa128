"""An API server that answers from recorded objects, over real HTTP, and a kubeconfig that names it."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from typer.testing import CliRunner, Result

from kvroll_cli import main

KVROLL = "/apis/kvroll.dev/v1alpha1"


@dataclass
class Recorded:
    """Answers by path (a dict is the body of a 200, a tuple is status and body), and the patches that were sent."""

    answers: dict[str, Any] = field(default_factory=dict)
    patches: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def listed(self, plural: str, *items: dict[str, Any], namespace: str | None = "demo") -> None:
        path = f"{KVROLL}/{plural}" if namespace is None else f"{KVROLL}/namespaces/{namespace}/{plural}"
        self.answers[path] = {"apiVersion": "kvroll.dev/v1alpha1", "kind": "List", "items": list(items)}

    def one(self, plural: str, item: dict[str, Any]) -> None:
        metadata = item["metadata"]
        self.answers[f"{KVROLL}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"] = item

    def revisions(self, *items: dict[str, Any], namespace: str = "demo") -> None:
        path = f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions"
        self.answers[path] = {"apiVersion": "apps/v1", "kind": "ControllerRevisionList", "items": list(items)}

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        found = self.answers.get(unquote(path.partition("?")[0]))
        if found is None:
            # What a real API server says of a path that it does not know.
            return 404, b"404 page not found\n"
        status, body = found if isinstance(found, tuple) else (200, found)
        return status, body if isinstance(body, bytes) else json.dumps(body).encode()


def _handler(recorded: Recorded) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*recorded.answer(self.path))

        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            recorded.patches.append((self.path, self.headers["Content-Type"], body))
            self._send(*recorded.answer(self.path))

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    recorded = Recorded()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(recorded))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    recorded.url = f"http://127.0.0.1:{server.server_address[1]}"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(_kubeconfig(recorded.url)))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    yield recorded
    server.shutdown()
    thread.join()
    server.server_close()


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "demo",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [
            {"name": "demo", "context": {"cluster": "here", "user": "me", "namespace": "demo"}},
            {"name": "bare", "context": {"cluster": "here", "user": "me"}},
        ],
    }


@pytest.fixture
def kvroll(capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Runs a command line as the console script does: refusals are one line on stderr and exit code 1."""

    def run(*arguments: str) -> Result:
        outcome: list[Result] = []

        def invoke() -> None:
            outcome.append(CliRunner().invoke(main.app, list(arguments)))
            error = outcome[0].exception
            if error is not None and not isinstance(error, SystemExit):
                raise error

        refused = main.run(invoke)
        if refused:
            outcome[0].exit_code = refused
        return outcome[0]

    return run
