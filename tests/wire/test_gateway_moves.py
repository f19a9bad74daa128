"""The whole gateway before whole workers (their engine is the double): HTTP clients stream while workers drain, die and are cancelled."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from kvroll_gateway.service import Gateway
from kvroll_gateway.settings import GatewaySettings
from tests.doubles.engine_double import EngineDouble, undisturbed
from tests.wire.conftest import MakeWorker, RunningWorker

PROMPT = list(range(1, 101))
TOKENS = 200


@dataclass
class Client:
    """An HTTP client at a gateway; `seen` counts the tokens that reached it."""

    gateway: Gateway
    http: httpx.AsyncClient
    seen: int = field(default=0)

    async def stream(self, seed: int) -> dict[str, Any]:
        """One stream's token ids, indices, epochs and record."""
        body = {
            "model": "m",
            "prompt": PROMPT,
            "max_tokens": TOKENS,
            "seed": seed,
            "stream": True,
            "return_token_ids": True,
        }
        got: dict[str, Any] = {"ids": [], "indices": [], "epochs": []}
        async with self.http.stream("POST", "/v1/completions", json={**body, "ignore_eos": True}) as answer:
            event_id = ""
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    event_id = value
                elif name == "data" and value != "[DONE]":
                    self.take(got, json.loads(value), event_id)
        return got

    def take(self, got: dict[str, Any], chunk: dict[str, Any], event_id: str) -> None:
        assert "error" not in chunk, chunk
        got["ids"] += chunk["choices"][0]["token_ids"]
        got["indices"].append(int(event_id.rpartition(".")[2]))
        got["epochs"].append(event_id.split(".")[1])
        got["kvroll"] = chunk.get("kvroll")
        self.seen += 1

    def metric(self, name: str, **labels: str) -> float:
        return self.gateway.registry.get_sample_value(name, labels) or 0.0

    @property
    def delivered(self) -> float:
        return self.metric("kvroll_gateway_tokens_delivered_total", model="m")


async def until(condition: Any, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def attach() -> AsyncIterator[Any]:
    """A gateway in front of the given workers, and its client."""
    async with AsyncExitStack() as stack:

        async def make(*workers: RunningWorker, **settings: Any) -> Client:
            fields = {"worker_lost_seconds": 0.3, "worker_silent_seconds": 0.6, **settings}
            gateway = await stack.enter_async_context(
                Gateway(GatewaySettings(workers=tuple(w.address for w in workers), **fields))
            )
            transport = httpx.ASGITransport(app=gateway.app)
            http = await stack.enter_async_context(
                httpx.AsyncClient(transport=transport, base_url="http://g", timeout=30)
            )
            client = Client(gateway, http)
            await until(lambda: client.metric("kvroll_gateway_workers") == len(workers))
            return client

        yield make


def check(got: dict[str, Any], seed: int) -> None:
    assert got["indices"] == list(range(TOKENS))
    assert got["ids"] == undisturbed(PROMPT, TOKENS, seed=seed)
    assert got["kvroll"]["record"]["completion_tokens"] == TOKENS


@pytest.mark.parametrize(("allow", "kind"), [(["Exact"], "Exact"), (["Replay"], "Replay")])
async def test_a_drain_moves_every_stream_and_no_client_notices(
    make_worker: MakeWorker, attach: Any, allow: list[str], kind: str
) -> None:
    source, target = (
        await make_worker(EngineDouble(step_seconds=0.004)),
        await make_worker(EngineDouble(step_seconds=0.001), admitting=False),
    )
    client = await attach(source, target)
    streams = [asyncio.create_task(client.stream(seed)) for seed in range(4)]
    await until(lambda: client.delivered >= 40)
    await source.admit(False)
    await target.admit(True)
    await source.drain(target.target(), allow=allow)
    for seed, stream in enumerate(streams):
        got = await stream
        check(got, seed)
        assert [one["mode"] for one in got["kvroll"]["precision_epochs"]] == ["Start", kind]
    assert client.metric("kvroll_gateway_moves_total", verdict=kind) == 4
    assert client.metric("kvroll_gateway_record_mismatches_total") == 0
    assert (await source.seal()).counters.lost == 0  # no session, no reservation, no unacknowledged frame


async def test_a_worker_that_stops_is_replayed_elsewhere(make_worker: MakeWorker, attach: Any) -> None:
    first, second = (
        await make_worker(EngineDouble(step_seconds=0.004)),
        await make_worker(EngineDouble(step_seconds=0.001), admitting=False),
    )
    client = await attach(first, second)
    streams = [asyncio.create_task(client.stream(seed)) for seed in range(3)]
    await until(lambda: client.delivered >= 40)
    await second.admit(True)
    await first.server.stop(0)
    for seed, stream in enumerate(streams):
        got = await stream
        check(got, seed)
        assert [one["mode"] for one in got["kvroll"]["precision_epochs"]] == ["Start", "Replay"]
    assert client.metric("kvroll_gateway_replays_total") == 3
    assert client.metric("kvroll_gateway_sessions_lost_total") == 0


async def test_admission_that_opens_later_is_heard(make_worker: MakeWorker, attach: Any) -> None:
    worker = await make_worker(admitting=False)
    client = await attach(worker)
    refused = await client.http.post("/v1/completions", json={"model": "m", "prompt": [1], "max_tokens": 1})
    assert refused.status_code == 503
    await worker.admit(True)
    await asyncio.sleep(0.1)
    taken = await client.http.post("/v1/completions", json={"model": "m", "prompt": [1], "max_tokens": 1})
    assert taken.status_code == 200, taken.text


async def test_a_disconnected_client_leaves_nothing_on_the_worker(make_worker: MakeWorker, attach: Any) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.004))
    client = await attach(worker)
    stream = asyncio.create_task(client.stream(1))
    await until(lambda: client.delivered >= 10)
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    await until(lambda: not worker.host.ledger.sessions)
    await worker.admit(False)
    await worker.seal()  # refused while anything is held
    assert worker.engine.stats().pages_free == worker.engine.num_pages


async def test_what_can_never_fit_is_the_clients_fault(make_worker: MakeWorker, attach: Any) -> None:
    client = await attach(await make_worker(EngineDouble(max_model_len=64)))
    answer = await client.http.post("/v1/completions", json={"model": "m", "prompt": PROMPT, "max_tokens": 8})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert "do not fit" in answer.json()["error"]["message"]
