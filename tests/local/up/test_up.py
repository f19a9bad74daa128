"""`kvroll up` with the small model: the verbs and kubectl on it, kills in the middle of a roll, and its end."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from kvroll_cli.demo.load.client import stream_chat
from kvroll_cli.demo.load.transcript import Transcript

from .conftest import Up

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(600)]


def started(up: Up, *flags: str) -> Up:
    up.begin("-f", str(up.file), "--port", "0", *flags)
    up.complete()
    return up


def test_the_verbs_and_kubectl_work_as_on_a_cluster(up: Up) -> None:
    started(up)
    assert "2/2" in up.done("kvroll", "status")
    assert len(up.pids("kvroll_worker")) == 2
    second = up.run("kvroll", "up")
    assert second.returncode == 1
    assert up.process is not None
    assert f"pid {up.process.pid}, state folder {up.state}" in second.stderr
    for path in (up.state / "kubeconfig", up.state / "token", up.state / "api.key"):
        assert path.stat().st_mode & 0o777 == 0o600
    kubectl = up.kubectl
    pods = up.done(*kubectl, "get", "pods", "-o", "name").split()
    assert len(pods) == 2
    assert '"event": "serving"' in up.done(*kubectl, "logs", pods[0])
    assert "smollm2" in up.done(*kubectl, "get", "kvpool", "chat", "-o", "jsonpath={.spec.model.uri}")
    asyncio.run(up.change("int8"))
    assert "int8" in up.done("kvroll", "plan", "chat")
    for verb in ("pause", "resume"):
        up.done("kvroll", verb, "chat")
    up.done(*kubectl, "wait", "--for=condition=RolloutComplete", "kvpool/chat", "--timeout=300s")
    assert "int8" in up.done("kvroll", "history", "chat")
    asyncio.run(up.change("bf16"))
    for verb in ("abort", "rollback"):
        up.done("kvroll", verb, "chat")

    async def back() -> bool:
        shown = up.done(*kubectl, "get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].args}")
        return shown.count("int8") == 2 and shown.count("--kv-cache") == 2

    asyncio.run(_until(back))
    with up.open("kvroll", "dashboard", "--port", "0") as address:
        assert httpx.get(address, timeout=60).status_code == 200
    up.done(*kubectl, "delete", "kvpool", "chat", "--timeout=120s")
    assert up.pids("kvroll_worker") == []


def test_a_pool_is_applied_and_watched_with_kubectl(up: Up) -> None:
    """`kvroll up` alone waits for a pool; `get -w` prints a row at each change of it, until it is complete."""
    up.begin("--port", "0")
    while not (up.state / "kubeconfig").exists():
        assert up.process is not None
        assert up.process.poll() is None, up.log.read_text()
        time.sleep(0.1)
    watch = [*up.kubectl, "get", "kvpool", "-w"]
    assert "created" in up.done(*up.kubectl, "apply", "-f", str(up.file))
    with subprocess.Popen(watch, env=up.env, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            assert "NAME" in watching.stdout.readline()
            assert any(row.startswith("chat ") and " 2/2 " in row for row in watching.stdout)
            up.write_pool(replicas=1)
            assert "configured" in up.done(*up.kubectl, "apply", "-f", str(up.file))
            assert any(row.startswith("chat ") and " 1/1 " in row for row in watching.stdout)
        finally:
            watching.kill()
    up.complete()
    assert "unchanged" in up.done(*up.kubectl, "apply", "-f", str(up.file))
    assert len(up.pids("kvroll_worker")) == 1


def test_it_serves_and_ctrl_c_leaves_nothing(up: Up) -> None:
    up.begin("-f", str(up.file), "--port", "0")
    up.complete()
    assert up.process is not None
    answer = httpx.post(
        f"{up.url}/v1/completions", json={"model": "small", "prompt": "One two", "max_tokens": 4}, timeout=60
    )
    assert answer.status_code == 200
    os.kill(up.process.pid, signal.SIGINT)
    assert up.process.wait() == 0
    assert up.processes() == {}
    assert not up.state.exists()


def test_what_is_refused_leaves_nothing(up: Up) -> None:
    up.write_pool(model={"name": "small", "uri": "pvc://claim/model"}, gate={"source": "Job"})
    found = up.run("kvroll", "up", "-f", str(up.file))
    assert found.returncode == 1
    assert "spec.model.uri: pvc://claim/model names a volume claim" in found.stderr
    assert "spec.gate.source: Job needs images" in found.stderr
    up.write_pool(precision={"weights": "bf16", "kvCache": "bf17"})
    refused = up.run("kvroll", "up", "-f", str(up.file), "--port", "0")
    assert refused.returncode == 1
    assert "kvCache" in refused.stderr
    assert not up.state.exists()


def test_a_surge_without_a_device_is_said(up: Up) -> None:
    """Two devices, two workers that ask for one each: the roll's surge worker waits, with the reason."""
    up.write_pool(resources={"limits": {"nvidia.com/gpu": 1}})
    started(up, "--devices", "2")

    async def scenario() -> None:
        await up.change("int8")

        async def waits() -> bool:
            listed = await asyncio.to_thread(up.done, *up.kubectl, "get", "pods", "-o", "json")
            return "Insufficient nvidia.com/gpu" in listed and '"Unschedulable"' in listed

        await _until(waits)

    asyncio.run(scenario())
    assert len(up.pids("kvroll_worker")) == 2


def kill_up(up: Up) -> None:
    before = up.processes()
    up.kill()
    assert up.processes() == before  # nothing went with it
    up.begin("--port", "0")


def kill_operator(up: Up) -> None:
    (pid,) = up.pids("kvroll_operator")
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("harm", [kill_up, kill_operator])
def test_a_roll_goes_on_over_a_kill_and_its_clients_lose_nothing(up: Up, harm: Callable[[Up], None]) -> None:
    started(up)

    async def scenario() -> None:
        transcripts = [Transcript(prompt=f"Tell a long story about {n}.") for n in range(4)]
        async with httpx.AsyncClient(base_url=up.url, timeout=httpx.Timeout(600)) as http:
            asked = [
                (t, {"model": "small", "messages": [{"role": "user", "content": t.prompt}], "seed": 1})
                for t in transcripts
            ]
            long = {"max_tokens": 400, "min_tokens": 400, "temperature": 0.7}
            streams = [asyncio.create_task(stream_chat(http, t, {**body, **long})) for t, body in asked]

            async def all_begun() -> bool:
                return all(t.arrivals for t in transcripts)

            await _until(all_begun)
            await up.change("int8")

            async def draining() -> bool:
                listed = await asyncio.to_thread(
                    up.done, *up.kubectl, "get", "kvpool", "chat", "-o", "jsonpath={.status.groups[*].phase}"
                )
                return "Draining" in listed or "Admitting" in listed or "Warming" in listed

            await _until(draining)
            await asyncio.to_thread(harm, up)

            async def complete() -> bool:
                wait = ["wait", "--for=condition=RolloutComplete", "kvpool/chat", "--timeout=60s"]
                return (await asyncio.to_thread(up.run, *up.kubectl, *wait)).returncode == 0

            await _until(complete)
            await asyncio.gather(*streams)
        for t in transcripts:
            assert (t.is_lost, t.num_missing(), t.num_duplicated(), t.is_wrong(), t.error) == (False, 0, 0, False, None)

    asyncio.run(scenario())
    spec = up.done(*up.kubectl, "get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].args}")
    assert spec.count("int8") == 2


def test_after_everything_was_killed_nothing_old_is_believed(up: Up) -> None:
    started(up)
    before = up.processes()
    up.kill()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    said = len(up.log.read_text())
    up.begin("--port", "0")
    up.complete(2)
    told = up.log.read_text()[said:]
    assert "0 of 2 workers serve" in told[: told.index("complete")]
    assert not set(up.processes()) & set(before)
    restarts = up.done(
        *up.kubectl, "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}"
    )
    assert restarts.split() == ["1", "1"]
    assert Path(up.state / "kubeconfig").exists()


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():
        await asyncio.sleep(0.2)
