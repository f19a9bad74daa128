"""The worker as a process: it says its budget, serves, leaves on SIGTERM, and refuses in words what cannot fit."""

import asyncio
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import grpc.aio
import pytest

from kvroll.v1 import worker_pb2 as wpb
from kvroll.v1.worker_pb2_grpc import WorkerServiceStub
from kvroll_kernels.dispatch import native_is_built
from tests.worker.tiny_model import write_model

pytestmark = pytest.mark.slow
GRPC_PORT, HTTP_PORT = 17970, 17971


def start(model: Path, *flags: str) -> "subprocess.Popen[str]":
    ports = ["--host", "127.0.0.1", "--grpc-port", str(GRPC_PORT), "--http-port", str(HTTP_PORT)]
    ops = "native" if native_is_built() else "reference"
    command = [
        sys.executable,
        "-m",
        "kvroll_worker",
        "--model-uri",
        f"file://{model}",
        "--model-name",
        "tiny",
        "--ops",
        ops,
        *ports,
    ]
    root = Path(__file__).parents[2]
    path = ":".join(str(root / room) for room in ("core", "worker", "kernels", "proto"))
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "HOME": str(model.parent), "XDG_CACHE_HOME": str(model.parent)}
    return subprocess.Popen([*command, "--threads", "1", *flags], env=env, text=True, stderr=subprocess.PIPE)


def ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{HTTP_PORT}/readyz", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


async def test_it_serves_and_leaves_when_told(tmp_path: Path) -> None:
    process = start(write_model(tmp_path / "model"), "--admit", "--kv-memory", "4MiB")
    try:
        deadline = time.monotonic() + 90
        while not await asyncio.to_thread(ready):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline, "not ready in time"
            await asyncio.sleep(0.1)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{GRPC_PORT}") as channel:
            report = await WorkerServiceStub(channel).GetReport(wpb.GetReportRequest(), timeout=10)
        assert (report.ready, report.admitting, report.model) == (True, True, "tiny")
        assert report.pages.total > 0
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(process.communicate, timeout=30)
        assert process.returncode == 0, errors
        assert report.budget.splitlines()[0] in errors, "the budget is said at the start"
    finally:
        process.kill()
        process.wait()


def test_what_cannot_fit_ends_with_code_2_and_the_arithmetic(tmp_path: Path) -> None:
    process = start(write_model(tmp_path / "model"), "--kv-memory", "1KiB")
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 2, errors
    assert "error:" in errors
    assert any(character.isdigit() for character in errors.split("error:")[1])
    assert "Traceback" not in errors
