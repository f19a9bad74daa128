"""Every way in which an answer can end, on the wire: a finish_reason and then [DONE], or one typed error and no [DONE]; docs/endings.md."""

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvroll.v1 import inference_pb2 as inf
from kvroll_gateway.openai.shapes import CompletionShape
from kvroll_gateway.serving import Listener, listen
from tests.gateway.conftest import Bench, StartBench, read_events
from tests.gateway.fake_session import MODEL, Script
from tests.gateway.test_faults import delivered

DOCUMENT = Path(__file__).parents[2] / "docs" / "endings.md"
Act = Callable[[Bench], Awaitable[None]]


async def nothing(_: Bench) -> None:
    """It ends by itself."""


async def worker_goes(bench: Bench) -> None:
    await delivered(bench, 3)
    await bench.workers[0].die()


async def gateway_stops(bench: Bench) -> None:
    await delivered(bench, 3)
    assert await bench.gateway.drain() == 1  # the deadline came
    bench.gateway.end_sessions()


@dataclass(frozen=True)
class Ending:
    """What is set up, what happens, and how it must end."""

    script: Script
    code: str | None  # of the error; None: a finish
    status: int = 200  # of an answer that is no stream, and of a stream that does not begin
    act: Act = nothing
    begins: bool = True  # a stream has its headers before it ends
    finish: str = "length"
    settings: tuple[tuple[str, Any], ...] = ()
    max_tokens: int = 8


LONG = 100_000
ENDINGS = {
    "length": Ending(Script(), None),
    "stop": Ending(Script(stop_at_index=4), None, finish="stop"),
    "session fault": Ending(Script(fail_at_index=4, fail_code="NonFiniteLogits"), "NonFiniteLogits", 500),
    "nothing to choose": Ending(Script(fail_at_index=1, fail_code="NothingLeftToChoose"), "NothingLeftToChoose", 400),
    "dropped": Ending(Script(fail_at_index=4, fail_code="dropped"), "dropped", 503),
    "worker gone": Ending(Script(0.01), "session_lost", 503, worker_goes, settings=(("replay_deadline_seconds", 0.3),), max_tokens=LONG),
    "poison": Ending(Script(dies_of=5, dies_at_index=3), "session_poisoned", 500, settings=(("replay_limit", 0),)),
    "shutdown": Ending(Script(0.01), "gateway_stopping", 503, gateway_stops, settings=(("drain_seconds", 0.1),), max_tokens=LONG),
    "does not fit": Ending(Script(reject=inf.REJECT_CODE_INVALID), "invalid_request", 400, begins=False),
    "no worker": Ending(Script(reject=inf.REJECT_CODE_UNAVAILABLE), "no_worker_available", 503, begins=False),
    "fenced": Ending(Script(reject=inf.REJECT_CODE_FENCED), "fenced", 503, begins=False),
}  # fmt: skip


def assert_legal(text: str, code: str | None, finish: str) -> None:
    *events, last = [event.data for event in read_events(text)]
    reasons = [choice["finish_reason"] for event in events for choice in event.get("choices", [])]
    errors = [event for event in [*events, last] if event != "[DONE]" and "error" in event]
    if code is None:
        assert (last, errors) == ("[DONE]", [])
        assert [one for one in reasons if one] == [finish]
        assert reasons[-1] == finish
    else:
        assert errors == [last], "one error, and it is the last word"
        assert last["error"].keys() == {"message", "type", "param", "code"}
        assert last["error"]["code"] == code
        assert not any(reasons)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.fast_where(stream=True)
async def test_it_ends_as_it_may(start: StartBench, name: str, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    ending = ENDINGS[name]
    bench = await start(ending.script, **dict(ending.settings))
    body = {"model": MODEL, "prompt": [5], "max_tokens": ending.max_tokens, "stream": stream}
    asked = asyncio.create_task(bench.http.post("/v1/completions", json=body))
    await ending.act(bench)
    answer = await asyncio.wait_for(asked, 30)
    if stream and ending.begins:
        assert answer.status_code == 200
        assert_legal(answer.text, ending.code, ending.finish)
    else:
        assert answer.status_code == ending.status
        found = answer.json()
        if ending.code is None:
            assert found["choices"][0]["finish_reason"] == ending.finish
        else:
            assert found["error"]["code"] == ending.code
            assert ("retry-after" in answer.headers) == (ending.status == 503)
    await bench.until(lambda: bench.gateway.table.live == 0)
    assert "Traceback" not in caplog.text


async def test_one_choice_of_several_ends_them_all_with_one_error(start: StartBench) -> None:
    bench = await start(Script(fail_at_index=4, fail_code="SessionError"))
    body = {"model": MODEL, "prompt": [5], "max_tokens": 8, "stream": True, "n": 3}
    assert_legal((await bench.http.post("/v1/completions", json=body)).text, "SessionError", "")


async def test_a_defect_of_ours_is_one_typed_error_and_stands_in_the_log(
    start: StartBench, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bench = await start(Script())

    def fails(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(CompletionShape, "choice", fails)
    body = {"model": MODEL, "prompt": [5], "max_tokens": 8, "stream": True}
    assert_legal((await bench.http.post("/v1/completions", json=body)).text, "internal_error", "")
    assert "planted" in "".join(capfd.readouterr())
    await bench.until(lambda: not bench.workers[0].copies)


async def test_a_client_too_slow_is_told_at_the_end_of_what_it_has_not_read(start: StartBench) -> None:
    bench = await start(Script(0.0), log_frames=64)
    listening = listen("127.0.0.1", 0)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # else the kernel reads for the client
    async with Listener(bench.gateway, "127.0.0.1", 0, listening) as listener:
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(plain, ("127.0.0.1", listener.port))
            body = json.dumps({"model": MODEL, "prompt": [5], "max_tokens": 10**6, "stream": True, "logprobs": 20})
            head = (
                f"POST /v1/completions HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            await loop.sock_sendall(plain, (head + body).encode())
            cut = ("kvroll_gateway_sessions_ended_total", {"model": "", "outcome": "cut_off"})
            await bench.until(lambda: bench.metric(cut[0], **cut[1]) == 1, 60)
            text = b""
            while part := await asyncio.wait_for(loop.sock_recv(plain, 1 << 20), 60):
                text += part
    assert b"client_too_slow" in text[-600:]
    assert b"[DONE]" not in text
    assert bench.metric("kvroll_gateway_sessions_lost_total") == 0


def test_the_document_names_every_code_that_is_tested_here() -> None:
    told = set(re.findall(r"`([A-Za-z_]+)`", DOCUMENT.read_text()))
    tested = {one.code for one in ENDINGS.values() if one.code} | {"internal_error", "client_too_slow", "SessionError"}
    assert tested <= told, tested - told
