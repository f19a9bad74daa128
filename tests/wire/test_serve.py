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
    assert errors.splitlines()[-1].startswith(b"kvroll: ")
    assert b"Traceback" not in errors


def test_a_port_that_is_told_takes_connections_already() -> None:
    with bound("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=5) as client:
        assert client.getpeername() == listener.getsockname()


@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_ends_an_open_stream_with_one_typed_error(tmp_path: Path, times: int) -> None:
    process = await start(
        write_model(tmp_path / "tiny", max_position_embeddings=16_000), "--drain-seconds", "1" if times == 1 else "600"
    )
    assert process.stderr is not None
    url, _ = await url_of(process)
    async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
        body = {"model": "tiny", "prompt": [1, 2], "max_tokens": 3000, "extra_body": {"ignore_eos": True}}
        streams = [await client.completions.create(stream=True, n=4, **body) for _ in range(2)]  # type: ignore[call-overload]
        chunks = [aiter(stream) for stream in streams]
        for one in chunks:
            await anext(one)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            await asyncio.sleep(0.3)
        for one in chunks:
            with pytest.raises(openai.APIError) as ended:
                async for _ in one:
                    pass
            assert ended.value.code == "gateway_stopping"
    errors = (await asyncio.wait_for(process.stderr.read(), 60)).decode()
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert "Traceback" not in errors


async def test_a_worker_that_ends_leaves_one_typed_error_and_its_code(tmp_path: Path) -> None:
    process = await start(write_model(tmp_path / "tiny"))
    assert process.stderr is not None
    url, _ = await url_of(process)
    (worker,) = psutil.Process(process.pid).children()
    async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
        stream = await client.completions.create(
            model="tiny", prompt=[1], max_tokens=900, n=16, stream=True, extra_body={"ignore_eos": True}
        )
        chunks = aiter(stream)
        await anext(chunks)
        worker.kill()
        with pytest.raises(openai.APIError) as ended:
            async for _ in chunks:
                pass
    assert ended.value.code in ("gateway_stopping", "session_lost")
    errors = (await asyncio.wait_for(process.stderr.read(), 60)).decode()
    assert await asyncio.wait_for(process.wait(), 30) != 0
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (["--head", "int4"], 2, "--head"),
        (["--kv-cache", "int3"], 2, "int3"),
        (["--weights", "bf17"], 2, "bf17"),
        (["--kv-cache", "int8", "--kv-skip-layers", "99"], 2, "99"),
        (["--kv-skip-layers", "a"], 2, "--kv-skip-layers"),
        (["--weights", "int4", "--weight-block-size", "7"], 2, "7"),
        (["--kv-memory", "lots"], 2, "--kv-memory"),
        (["--max-model-len", "100000000"], 2, ""),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else None,
)
async def test_a_wrong_flag_is_told_in_our_words(tmp_path: Path, flags: list[str], code: int, told: str) -> None:
    process = await start(write_model(tmp_path / "tiny"), *flags)
    try:
        _, errors = await asyncio.wait_for(process.communicate(), 120)
    finally:
        if process.returncode is None:
            process.kill()
    text = errors.decode()
    assert process.returncode == code, text
    assert told in text
    assert "Traceback" not in text
    assert "usage:" not in text
    assert "kvroll-worker" not in text


async def test_a_metrics_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with bound("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        process = await start(write_model(tmp_path / "tiny"), "--metrics-port", str(port))
        _, errors = await asyncio.wait_for(process.communicate(), 120)
    text = errors.decode()
    assert process.returncode == 1, text
    assert text.startswith(f"kvroll: --metrics-port: cannot listen on 127.0.0.1:{port}"), text
    assert "Traceback" not in text
