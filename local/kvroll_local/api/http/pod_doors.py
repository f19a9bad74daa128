"""`pods/NAME/log` and `pods/NAME:PORT/proxy/…`."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from kvroll_local.api.http.call import Call
from kvroll_local.api.objects.refused import Json, Refused, not_built
from kvroll_local.api.pod_logs import log_path

_TAIL_SECONDS = 0.2
_PROXY_SECONDS = 30.0


def log(call: Call, pod: Json, state: Path) -> Response:
    """A container's output: all of it, its last lines, or as it comes."""
    for option in ("sinceSeconds", "sinceTime", "timestamps"):
        if call.query(option) not in ("", "false"):
            raise not_built(
                f"logs with {option}", "lines are kept as the process wrote them, without their time; use --tail"
            )
    path = log_path(state, pod["metadata"]["uid"], _container(call, pod), call.flag("previous"))
    if call.flag("previous") and not path.exists():
        raise Refused(
            400, "BadRequest", f'previous terminated container "{_container(call, pod)}" in pod "{call.name}" not found'
        )
    start = _start(path, call.number("tailLines"))
    if call.flag("follow"):
        return StreamingResponse(_follow(path, start), media_type="text/plain")
    data = b""
    if path.exists():
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(call.number("limitBytes") or -1)
    return PlainTextResponse(data)


def _container(call: Call, pod: Json) -> str:
    names = [c["name"] for c in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]]
    asked = call.query("container")
    if asked and asked not in names:
        raise Refused(
            400, "BadRequest", f"container {asked} is not valid for pod {call.name}: expected one of {', '.join(names)}"
        )
    if not asked and len(pod["spec"]["containers"]) > 1:
        raise Refused(
            400,
            "BadRequest",
            f"a container name must be specified for pod {call.name}, choose one of: [{' '.join(names)}]",
        )
    return asked or str(names[0])


def _start(path: Path, tail: int | None) -> int:
    """Where the last lines begin."""
    if tail is None or not path.exists():
        return 0
    data = path.read_bytes()
    at = len(data)
    for _ in range(tail + (not data.endswith(b"\n"))):
        at = data.rfind(b"\n", 0, max(0, at - 1)) + 1
        if at == 0:
            break
    return at if tail else len(data)


async def _follow(path: Path, start: int) -> AsyncIterator[bytes]:
    """The file as it grows; begun again where it was rotated away."""
    at, inode = start, path.stat().st_ino if path.exists() else 0
    while True:
        if path.exists():
            if path.stat().st_ino != inode:
                at, inode = (0 if inode else at), path.stat().st_ino
            with path.open("rb") as file:
                file.seek(at)
                while chunk := file.read(65536):
                    at += len(chunk)
                    yield chunk
        await asyncio.sleep(_TAIL_SECONDS)


async def proxy(call: Call, pod: Json, port: str) -> Response:
    """What the Pod itself answers at that port."""
    address = (pod.get("status") or {}).get("podIP")
    if not address:
        raise Refused(503, "ServiceUnavailable", f'pod "{call.name.partition(":")[0]}" has no address yet')
    url = f"http://{address}:{_port(pod, port)}/{call.rest}"
    headers = {key: value for key, value in call.http.headers.items() if key in ("accept", "content-type")}
    try:
        async with httpx.AsyncClient(timeout=_PROXY_SECONDS, trust_env=False) as client:
            found = await client.request(
                call.method, url, params=call.http.url.query or None, headers=headers, content=await call.http.body()
            )
    except httpx.HTTPError as error:
        raise Refused(
            503, "ServiceUnavailable", f"error trying to reach service: {url}: {error or type(error).__name__}"
        ) from error
    return Response(found.content, found.status_code, media_type=found.headers.get("content-type"))


def _port(pod: Json, port: str) -> int:
    """The number of a port that may be given by name; the first container port where none is."""
    ports = [p for c in pod["spec"]["containers"] for p in c.get("ports", ())]
    if not port:
        return int(ports[0]["containerPort"]) if ports else 80
    if port.isdecimal():
        return int(port)
    for entry in ports:
        if entry.get("name") == port:
            return int(entry["containerPort"])
    raise Refused(503, "ServiceUnavailable", f"the pod has no port named {port!r}")
