"""An API server's Pods, which one switch makes accept and never answer."""

import asyncio
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web


class SilentApi:
    """Serves Pods of the namespace `ns`, one for each worker's port; `silent` stops every answer, a watch's too."""

    def __init__(self, ports: list[int]) -> None:
        self.silent = asyncio.Event()
        self._pods = [_pod(f"w{number}", port) for number, port in enumerate(ports)]

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/ns/pods", self._pods_of)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def write_kubeconfig(self, path: Path) -> Path:
        cluster = {"server": f"http://127.0.0.1:{self._runner.addresses[0][1]}"}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [context]}
        config |= {"clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {}}]}
        path.write_text(json.dumps(config))
        return path

    async def _pods_of(self, request: web.Request) -> web.StreamResponse:
        if self.silent.is_set():
            await asyncio.sleep(600)
        if request.query.get("watch") not in ("true", "True"):
            body = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": self._pods}
            return web.json_response(body)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        try:
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", 60))):
                await self.silent.wait()
        except TimeoutError:
            return answer
        await asyncio.sleep(600)
        return answer


def _pod(name: str, port: int) -> dict[str, Any]:
    labels = {"kvroll.dev/pool": "chat", "kvroll.dev/admitted": "true"}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "uid": "uid-" + name, "labels": labels, "resourceVersion": "1"},
        "spec": {"containers": [{"name": "engine", "image": "x", "ports": [{"name": "grpc", "containerPort": port}]}]},
        "status": {"phase": "Running", "podIP": "127.0.0.1"},
    }  # fmt: skip
