"""Every gRPC channel and server has the options of one place, and with them both ends notice a peer that says nothing."""

import ast
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import inference_pb2_grpc as inf_grpc
from kvroll.wire.channels import SILENT_SECONDS, client_options, server_options
from tests.wire.stalling_proxy import StallingProxy

ROOT = Path(__file__).parents[2]
ROOMS = ("operator", "gateway", "worker", "cli", "core", "bench", "cluster", "examples")
MAKERS = {"insecure_channel": "client_options", "secure_channel": "client_options", "server": "server_options"}


def test_every_channel_and_server_takes_its_options_from_the_one_place() -> None:
    found, wrong = 0, []
    for path in (file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "grpc" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS):
                continue
            if ast.unparse(node.func.value) not in ("grpc", "grpc.aio", "aio"):
                continue
            found += 1
            options = next((ast.unparse(one.value) for one in node.keywords if one.arg == "options"), "")
            names = {MAKERS[node.func.attr] + "(", "options"}  # called there, or a local of that name
            if not any(options.startswith(name) for name in names) or MAKERS[node.func.attr] not in text:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found >= 5
    assert not wrong, f"give these kvroll.wire.channels' options: {wrong}"


def test_both_ends_are_given_the_same_times_and_sizes() -> None:
    client, server = dict(client_options()), dict(server_options())
    same = {
        "grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms",
        "grpc.http2.max_pings_without_data", "grpc.max_receive_message_length", "grpc.max_send_message_length",
    }  # fmt: skip
    assert same <= client.keys() & server.keys()
    assert all(client[name] == server[name] for name in same)
    assert client["grpc.keepalive_time_ms"] + client["grpc.keepalive_timeout_ms"] < SILENT_SECONDS * 1000
    assert client["grpc.http2.ping_timeout_ms"] < SILENT_SECONDS * 1000
    assert server["grpc.http2.min_recv_ping_interval_without_data_ms"] < client["grpc.keepalive_time_ms"]


class Echo(inf_grpc.InferenceServiceServicer):
    """Says one word and then nothing, until the stream ends."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def Attach(self, request_iterator: AsyncIterator[inf.AttachRequest], context: Any) -> AsyncIterator[Any]:
        yield inf.AttachResponse(welcome=inf.Welcome(model="m"))
        try:
            await asyncio.sleep(600)
        finally:
            self.ended.set()


async def start_server(silent_seconds: float) -> tuple[grpc.aio.Server, Echo, int]:
    server, echo = grpc.aio.server(options=server_options(silent_seconds)), Echo()
    inf_grpc.add_InferenceServiceServicer_to_server(echo, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, echo, port


async def open_stream(port: int, options: Any) -> tuple[grpc.aio.Channel, Any]:
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
    call: Any = inf_grpc.InferenceServiceStub(channel).Attach()
    await call.write(inf.AttachRequest(hello=inf.Hello(gateway_id="g")))
    assert (await call.read()).welcome.model == "m"
    return channel, call


@pytest.mark.slow
async def test_both_ends_notice_a_link_that_drops_everything() -> None:
    server, echo, port = await start_server(5.0)
    async with StallingProxy(port) as proxy:
        channel, call = await open_stream(proxy.port, client_options(5.0))
        proxy.stall()
        began = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await asyncio.wait_for(call.read(), 30)
        client_seconds = time.monotonic() - began
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        await asyncio.wait_for(echo.ended.wait(), 30)
        server_seconds = time.monotonic() - began
        await channel.close()
    await server.stop(0)
    # Two fifths and two fifths of the five, and what a busy machine adds; without `ping_timeout_ms` it is more than a minute.
    assert max(client_seconds, server_seconds) < 20, (client_seconds, server_seconds)


@pytest.mark.slow
async def test_an_idle_stream_is_left_alone() -> None:
    """A server that does not permit pings answers them with GOAWAY, too_many_pings."""
    server, _, port = await start_server(2.0)
    channel, call = await open_stream(port, client_options(2.0))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(call.read())), 10)
        pytest.fail("the stream ended by itself")
    assert not call.done()
    call.cancel()
    await channel.close()
    await server.stop(0)
