"""An OpenAI server whose tokens are words: it echoes a prompt with logprobs, or does one of the things that servers do instead."""

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Words:
    """`flips`: share of positions where another token is the likeliest; `first`: a token that the server puts before every text."""

    flips: float = 0.0
    models: tuple[str, ...] = ("tiny",)
    first: str = ""
    logprobs: bool = True
    status: int = 200
    null_at: int = -1
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The echo of a completion of no tokens."""
        parts = body["prompt"].split(" ")
        tokens = [*([self.first] if self.first else []), parts[0], *(f" {part}" for part in parts[1:])]
        own: list[float | None] = [None, *[-0.5] * (len(tokens) - 1)]
        best: list[dict[str, float] | None] = [None]
        for at, token in enumerate(tokens[1:], 1):
            flipped = random.Random(f"{at} {body['prompt']}").random() < self.flips
            best.append({token: -0.5, "other": -0.1 if flipped else -1.5})
        if self.null_at > 0:
            own[self.null_at] = None
        logprobs = {"tokens": tokens, "token_logprobs": own, "top_logprobs": best, "text_offset": []}
        return {"choices": [{"text": body["prompt"], "logprobs": logprobs if self.logprobs else None}]}


@contextmanager
def serving(words: Words) -> Iterator[str]:
    """Its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": name} for name in words.models]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            words.bodies.append(body)
            words.keys.add(self.headers["Authorization"])
            if words.status != 200:
                self._send(words.status, {"error": {"message": "logprobs of an echo are not supported"}})
            else:
                self._send(200, words.complete(body))

        def _send(self, status: int, found: dict[str, Any]) -> None:
            told = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
