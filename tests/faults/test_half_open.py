"""Whoever stands still without a word is noticed within ten seconds, and no client's stream loses or repeats a token: real processes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.wire.process_fleet import Fleet
from tests.wire.silent_api import SilentApi
from tests.wire.stalling_proxy import StallingProxy
from tests.worker.tiny_model import write_model

NOTICED_SECONDS = 10.0
SLOW = {"KVROLL_TEST_STEP_SECONDS": "0.04"}  # 700 tokens take half a minute: the fault comes in their midst
BODY = {
    "model": "tiny", "prompt": [9, 8, 7], "max_tokens": 700, "temperature": 0, "ignore_eos": True, "stream": True,
    "return_token_ids": True,
}  # fmt: skip


class Stream:
    """A client's stream: the index and the id of each token that it was given."""

    def __init__(self, fleet: Fleet) -> None:
        self.tokens: list[tuple[int, int]] = []
        self.last = ""
        self._task = asyncio.create_task(self._read(fleet))

    async def _read(self, fleet: Fleet) -> None:
        async with fleet.http.stream("POST", "/v1/completions", json=BODY) as answer:
            event_id = ""
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    event_id = line
                if line.startswith("data: "):
                    self.last = line.removeprefix("data: ")
                    for choice in json.loads(self.last).get("choices", []) if self.last != "[DONE]" else []:
                        self.tokens += [(int(event_id.rpartition(".")[2]), one) for one in choice["token_ids"]]

    async def begun(self, count: int = 20) -> None:
        async with asyncio.timeout(60):
            while len(self.tokens) < count:
                await asyncio.sleep(0.02)

    async def whole(self, seconds: float = 150.0) -> list[tuple[int, int]]:
        await asyncio.wait_for(self._task, seconds)
        assert self.last == "[DONE]", self.last
        return self.tokens


def lost_series(reason: str) -> Callable[[Mapping[str, float]], object]:
    return lambda page: page.get(f'kvroll_gateway_workers_lost_total{{reason="{reason}"}}', 0) > 0


async def frozen_process(fleet: Fleet, _: Path, __: AsyncExitStack) -> AsyncIterator[float]:
    await fleet.start_gateway()
    yield 0
    worker = await fleet.busy_worker()
    worker.freeze()
    yield await fleet.until(lost_series("silent"))
    await fleet.until(lambda page: page["kvroll_gateway_replays_total"] == 1)
    worker.thaw()  # and what it says now comes too late
    await fleet.until(lambda page: page.get('vllm:num_requests_running{model_name="tiny"}', 0) == 0, worker)


async def dropped_packets(fleet: Fleet, _: Path, stack: AsyncExitStack) -> AsyncIterator[float]:
    proxies = [
        await stack.enter_async_context(StallingProxy(worker.ready.result()["grpc_port"])) for worker in fleet.workers
    ]
    await fleet.start_gateway(*[part for proxy in proxies for part in ("--worker", f"127.0.0.1:{proxy.port}")])
    yield 0
    worker = await fleet.busy_worker()
    proxy = proxies[fleet.workers.index(worker)]
    proxy.stall()
    yield await fleet.until(lost_series("silent"))
    await fleet.until(lambda page: page["kvroll_gateway_replays_total"] == 1)
    proxy.go_on()
    await fleet.until(lambda page: page.get('vllm:num_requests_running{model_name="tiny"}', 0) == 0, worker)


async def stuck_engine(fleet: Fleet, folder: Path, _: AsyncExitStack) -> AsyncIterator[float]:
    await fleet.start_gateway()
    yield 0
    worker = await fleet.busy_worker()
    hang = folder / f"hang-{fleet.workers.index(worker)}"
    hang.touch()
    yield await fleet.until(lost_series("stuck"))
    await fleet.until(lambda page: page["kvroll_gateway_replays_total"] == 1)
    hang.unlink()
    await fleet.until(lambda page: page.get('vllm:num_requests_running{model_name="tiny"}', 0) == 0, worker)


async def frozen_gateway(fleet: Fleet, _: Path, __: AsyncExitStack) -> AsyncIterator[float]:
    await fleet.start_gateway()
    yield 0
    worker = await fleet.busy_worker()
    assert fleet.gateway is not None
    fleet.gateway.freeze()
    yield await fleet.until(lambda page: page["kvroll_gateway_streams_ended_total"] > 0, worker)
    fleet.gateway.thaw()


async def silent_api(fleet: Fleet, folder: Path, stack: AsyncExitStack) -> AsyncIterator[float]:
    ports = [worker.ready.result()["grpc_port"] for worker in fleet.workers]
    api = await stack.enter_async_context(SilentApi(ports))
    kubeconfig = api.write_kubeconfig(folder / "kubeconfig")
    await fleet.start_gateway("--namespace", "ns", KUBECONFIG=str(kubeconfig))
    yield 0
    await fleet.busy_worker()
    api.silent.set()
    yield await fleet.until(lambda page: page["kvroll_gateway_pod_watch_failures_total"] > 0)
    answer = await fleet.http.post("/v1/completions", json={**BODY, "stream": False, "max_tokens": 2})
    assert answer.status_code == 200, answer.text  # the workers that it knows are still there


CASES = [frozen_process, dropped_packets, stuck_engine, frozen_gateway, silent_api]


@pytest.mark.timeout(1800)
async def test_half_open(tmp_path: Path, fault_report: Callable[[Any], None]) -> None:
    model = write_model(tmp_path / "tiny")
    rows: list[dict[str, Any]] = []
    expected: list[tuple[int, int]] = []
    for case in CASES:
        async with Fleet(model, tmp_path) as fleet, AsyncExitStack() as stack:
            for number in range(2):
                await fleet.start_workers(1, **SLOW, KVROLL_TEST_HANG=str(tmp_path / f"hang-{number}"))
            story = case(fleet, tmp_path, stack)
            await anext(story)
            if not expected:
                expected = await Stream(fleet).whole()
            stream = Stream(fleet)
            await stream.begun()
            noticed_seconds = await anext(story)
            async for _ in story:
                pass
            found = await stream.whole()
            rows.append(
                {
                    "case": case.__name__,
                    "noticed_seconds": round(noticed_seconds, 2),
                    "lost": len(set(expected) - set(found)),
                    "duplicated": len(found) - len({index for index, _ in found}),
                }
            )
            fault_report(rows)
    assert [one for one in rows if one["lost"] or one["duplicated"]] == []
    assert [one for one in rows if one["noticed_seconds"] > NOTICED_SECONDS] == []
