"""`kvroll serve`: a gateway in this process and one worker as its child; both end together."""

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from kvroll_cli.errors import CliError
from kvroll_cli.listener import bound
from kvroll_gateway.service import Gateway
from kvroll_gateway.serving import Listener, until_told
from kvroll_gateway.settings import GatewaySettings

_EXIT_SECONDS = 10.0
_LINE_BYTES = 1 << 20


@dataclass(frozen=True)
class ServeOptions:
    """What the command line asks for; `worker_flags` are passed on as they are."""

    model: Path
    model_name: str
    weights: str
    kv_cache: str
    host: str
    port: int
    drain_seconds: float
    worker_flags: tuple[str, ...] = ()


class WorkerExitError(Exception):
    """The worker ended by itself; it said why on stderr."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the worker ended with code {code}")
        self.code = code


class ChildWorker:
    """A worker process on loopback that ends when told, and when this process goes, however it goes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ports: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, options: ServeOptions) -> "ChildWorker":
        """Starts it; it loads its model meanwhile."""
        flags = ["--model-uri", options.model.resolve().as_uri(), "--model-name", options.model_name, "--admit"]
        flags += ["--weights", options.weights, "--kv-cache", options.kv_cache, "--leave-with-stdin"]
        flags += ["--host", "127.0.0.1", "--grpc-port", "0", *options.worker_flags]
        # A session of its own: Ctrl-C reaches us alone, and open streams end before the worker does.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kvroll_worker", *flags,
            stdin=PIPE, stderr=PIPE, limit=_LINE_BYTES, start_new_session=True,
            env={**os.environ, "KVROLL_TERMINATION_GRACE_SECONDS": "0"},
        )  # fmt: skip
        return cls(process)

    async def ports(self) -> tuple[int, int]:
        """Its ports for gRPC and for metrics, once it serves.

        Raises:
            WorkerExitError: it ended before.
        """
        return await asyncio.shield(self._ports)

    async def ended(self) -> int:
        """Its exit code, when it has ended."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Ends it: asks first."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _EXIT_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        """Passes on what it says to people, and what goes wrong; learns the ports from its log."""
        assert self._process.stderr is not None
        async for raw in self._process.stderr:
            line = raw.decode(errors="replace").rstrip()
            event = _json_object(line)
            if event.get("event") == "serving" and not self._ports.done():
                self._ports.set_result((int(event["grpc_port"]), int(event["http_port"])))
            if not event or event.get("level") not in ("debug", "info"):
                print(_in_our_words(line), file=sys.stderr, flush=True)
        code = await self._process.wait()
        if not self._ports.done():
            self._ports.set_exception(WorkerExitError(code))
            self._ports.exception()  # whoever waits gets it; nobody has to


def run(options: ServeOptions) -> int:
    """Serves until Ctrl-C or SIGTERM; returns the exit code (2: the model cannot run or fit here, the worker says why).

    Raises:
        CliError: there is no model there, or the port is taken.
    """
    if not (options.model / "config.json").is_file():
        raise CliError(f"--model: expected a folder with config.json, found none at {options.model}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with bound(options.host, options.port) as listener, contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_serve(options, listener))
    return 0


async def _serve(options: ServeOptions, listening: socket.socket) -> int:
    worker = await ChildWorker.start(options)
    try:
        port, _ = await worker.ports()
        settings = GatewaySettings(
            workers=(f"127.0.0.1:{port}",), drain_seconds=options.drain_seconds, replay_deadline_seconds=1.0
        )
        async with Gateway(settings) as gateway:
            while not gateway.models():  # the worker answers at once
                await asyncio.sleep(0.02)
            return await _until_told(options, listening, gateway, worker)
    except WorkerExitError as error:
        return error.code or 1
    finally:
        await worker.stop()


async def _until_told(options: ServeOptions, listening: socket.socket, gateway: Gateway, worker: ChildWorker) -> int:
    died = asyncio.create_task(worker.ended())
    async with Listener(gateway, options.host, options.port, listening) as listener:
        metrics_url = f"http://127.0.0.1:{(await worker.ports())[1]}/metrics"
        gateway.metrics_series.tell_engine(metrics_url)
        _say(options, listening, metrics_url)
        await until_told(gateway, listener, died)
    if died.done():
        print(f"kvroll: the worker ended with code {died.result()}", file=sys.stderr)
        return died.result() or 1
    died.cancel()
    return 0


def _say(options: ServeOptions, listener: socket.socket, metrics_url: str) -> None:
    host, port = listener.getsockname()[:2]
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    precision = f"weights {options.weights}, KV cache {options.kv_cache}"
    print(f"engine metrics at {metrics_url}", file=sys.stderr)
    print(f"serving {options.model_name} ({precision}) at {where}; Ctrl-C ends it", file=sys.stderr, flush=True)


def _in_our_words(line: str) -> str:
    """A worker's refusal names its flags, which are ours but for one."""
    if not line.startswith("error: "):
        return line
    return "kvroll: " + line.removeprefix("error: ").replace("--http-port", "--metrics-port")


def _json_object(line: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}
