"""`kvroll serve` as a process: one command, one Ctrl-C, nothing left behind."""

import asyncio
import signal
import socket
import sys
import time
import urllib.request
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import openai
import psutil
import pytest

from kvroll_cli.listener import bound
from tests.worker.tiny_model import write_model

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


async def start(model: Path, *flags: str) -> Process:
    path = ":".join(str(ROOT / room) for room in ("core", "cli", "gateway", "operator", "worker", "kernels", "proto"))
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "HOME": str(model.parent), "XDG_CACHE_HOME": str(model.parent)}
    command = ["-c", "from kvroll_cli.main import main; main()", "serve", "--model", str(model), "--port", "0"]
    flags = ("--threads", "1", "--kv-memory", "4MiB", *flags)
    return await asyncio.create_subprocess_exec(sys.executable, *command, *flags, env=env, stderr=PIPE)


async def url_of(process: Process) -> tuple[str, str]:
    """Where it serves, and what it said before."""
    assert process.stderr is not None
    said = ""
    async with asyncio.timeout(120):
        async for line in process.stderr:
            if "serving" in (text := line.decode()):
                return text.split(" at ")[1].split(";")[0], said
            said += text
    raise AssertionError(said)


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_it_serves_and_takes_its_worker_with_it(tmp_path: Path, number: signal.Signals) -> None:
    process = await start(write_model(tmp_path / "tiny"))
    try:
        url, said = await url_of(process)
        assert "KV" in said, "the budget is printed"
        metrics = said.split("engine metrics at ")[1].split()[0]
        assert "vllm:kv_cache_usage_perc" in await asyncio.to_thread(read, metrics)
        (worker,) = psutil.Process(process.pid).children()
        async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
            whole: dict[str, bool] = {"ignore_eos": True}
            found = await client.completions.create(
                model="tiny", prompt=[[1, 2, 3], [4, 5]], max_tokens=2, n=2, echo=True, logprobs=1, extra_body=whole
            )
            assert [len(one.logprobs.tokens or []) for one in found.choices if one.logprobs] == [5, 5, 4, 4]
            chat = await client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "hi"}], extra_body=whole
            )
            assert chat.usage is not None
            assert chat.usage.total_tokens == (await client.models.list()).data[0].max_model_len  # type: ignore[attr-defined]
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 30) == (0 if number is signal.SIGINT else -number)
        deadline = time.monotonic() + 15
        while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the worker outlived its parent"
            await asyncio.sleep(0.1)
    finally:
        if process.returncode is None:
            process.kill()


async def test_what_cannot_fit_is_said_by_the_worker_and_ends_with_code_2(tmp_path: Path) -> None:
    process = await start(write_model(tmp_path / "tiny"), "--kv-memory", "1KiB")
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2, errors
    assert b"error:" in errors
    assert b"Traceback" not in errors


def test_a_port_that_is_told_takes_connections_already() -> None:
    with bound("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=5) as client:
        assert client.getpeername() == listener.getsockname()
