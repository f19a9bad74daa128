"""The client of the API server against a server that does everything wrong: whatever happens is an ApiError of one kind."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from kubernetes.aio import client

from kvroll_operator.cluster.client import MOST_RETRY_AFTER_SECONDS, Api, ApiError, ApiProblem

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def raw(status: str, body: str = "", *headers: str, length: int | None = None) -> bytes:
    size = len(body.encode()) if length is None else length
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {size}", *headers, "", ""]
    return "\r\n".join(head).encode() + body.encode()


def says(answer: bytes) -> Answer:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return act


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


class Server:
    """One answer to everything, or a list of answers in turn."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[str] = []
        self.counted: list[tuple[str, str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode())
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Server, Api]]:
    monkeypatch.setattr("kvroll_operator.cluster.client.REQUEST_SECONDS", 1)
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    api = Api(client.ApiClient(configuration), lambda method, problem: made.counted.append((method, problem)))
    yield made, api
    await api.close()
    listening.close()


CALLS: dict[str, Callable[[Api], Awaitable[Any]]] = {
    "get": lambda api: api.get("/x"),
    "list": lambda api: api.list("/x", "a=b"),
    "create": lambda api: api.create("/x", {}),
    "dry run": lambda api: api.create("/x", {}, dry_run=True),
    "apply": lambda api: api.apply("/x", {}),
    "patch": lambda api: api.patch("/x", {}),
    "delete": lambda api: api.delete("/x", uid="u"),
}
STATUS = json.dumps({"kind": "Status", "message": "because", "reason": "Word"})
FAULTS: dict[str, tuple[Answer, ApiProblem]] = {
    "cut before an answer": (says(b""), ApiProblem.UNREACHABLE),
    "cut in the head": (says(b"HTTP/1.1 200 O"), ApiProblem.UNREACHABLE),
    "half a body": (says(raw("200 OK", '{"items": [', length=500)), ApiProblem.UNREACHABLE),
    "no HTTP": (says(b"SSH-2.0-OpenSSH\r\n\r\n"), ApiProblem.UNREACHABLE),
    "nothing in time": (silence, ApiProblem.UNREACHABLE),
    "half JSON": (says(raw("200 OK", '{"items": [')), ApiProblem.GARBLED),
    "a page": (says(raw("200 OK", "<html>hello</html>")), ApiProblem.GARBLED),
    "bytes": (says(raw("200 OK", "\x00\x01")), ApiProblem.GARBLED),
    "a list": (says(raw("200 OK", "[]")), ApiProblem.GARBLED),
    "null": (says(raw("200 OK", "null")), ApiProblem.GARBLED),
    "a proxy's 503": (says(raw("503 Busy", "<html>later</html>")), ApiProblem.OVERLOADED),
    "500": (says(raw("500 Oops", STATUS)), ApiProblem.OVERLOADED),
    "504": (says(raw("504 Late", "")), ApiProblem.OVERLOADED),
    "429": (says(raw("429 Slow", STATUS, "Retry-After: 7")), ApiProblem.OVERLOADED),
    "401": (says(raw("401 Who", STATUS)), ApiProblem.FORBIDDEN),
    "403": (says(raw("403 No", STATUS)), ApiProblem.FORBIDDEN),
    "404": (says(raw("404 None", STATUS)), ApiProblem.GONE),
    "409": (says(raw("409 Changed", STATUS)), ApiProblem.CONFLICT),
    "422": (says(raw("422 Wrong", STATUS)), ApiProblem.INVALID),
    "a status that is a word": (says(raw("400 Wrong", '"no"')), ApiProblem.INVALID),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", [f for f in FAULTS if f != "nothing in time"])
@pytest.mark.fast_where(call="get")
@pytest.mark.fast_where(fault="half a body")
async def test_every_fault_of_every_call_is_one_kind_of_error(
    server: tuple[Server, Api], call: str, fault: str
) -> None:
    made, api = server
    answer, problem = FAULTS[fault]
    made.answers = [answer]
    with pytest.raises(ApiError) as raised:
        await CALLS[call](api)
    assert raised.value.problem is problem
    assert raised.value.is_down is (problem in (ApiProblem.UNREACHABLE, ApiProblem.GARBLED, ApiProblem.OVERLOADED))
    assert made.counted[-1][1] == problem


async def test_a_server_that_says_nothing_is_left_after_a_while(server: tuple[Server, Api]) -> None:
    made, api = server
    made.answers = [silence]
    with pytest.raises(ApiError) as raised:
        await api.get("/x")
    assert raised.value.problem is ApiProblem.UNREACHABLE


async def test_a_server_that_is_not_there(unused_tcp_port: int) -> None:
    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{unused_tcp_port}"
    api = Api(client.ApiClient(configuration))
    with pytest.raises(ApiError) as raised:
        await api.list("/x")
    assert raised.value.problem is ApiProblem.UNREACHABLE
    await api.close()


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("Retry-After: 7", "", 7.0),
        ("Retry-After: 86400", "", MOST_RETRY_AFTER_SECONDS),
        ("Retry-After: -3", "", 0.0),
        ("Retry-After: nan", "", 0.0),
        ("Retry-After: soon", "", 0.0),
        # RFC 9110 §10.2.3 also allows a date; this one is far ahead of every clock.
        ("Retry-After: Fri, 31 Dec 2100 23:59:59 GMT", "", MOST_RETRY_AFTER_SECONDS),
        ("X: y", json.dumps({"details": {"retryAfterSeconds": 3}}), 3.0),
        ("X: y", json.dumps({"details": None}), 0.0),
        ("X: y", json.dumps({"details": "soon"}), 0.0),
    ],
)
async def test_the_server_says_when_to_come_again(
    server: tuple[Server, Api], header: str, body: str, seconds: float
) -> None:
    made, api = server
    made.answers = [says(raw("429 Slow", body, header))]
    with pytest.raises(ApiError) as raised:
        await api.get("/x")
    assert raised.value.retry_after_seconds == seconds


async def test_a_list_is_read_page_by_page_and_begun_anew_when_it_expires(server: tuple[Server, Api]) -> None:
    made, api = server

    def page(name: str, token: str) -> Answer:
        return says(raw("200 OK", json.dumps({"metadata": {"continue": token}, "items": [{"n": name}]})))

    expired = says(raw("410 Gone", STATUS))
    made.answers = [page("a", "t/1="), expired, page("a", "t/1="), page("b", "")]
    assert [item["n"] for item in await api.list("/x")] == ["a", "b"]
    assert "continue=t/1%3D" in made.asked[-1]
    made.answers = [page("a", "t"), expired] * 3
    with pytest.raises(ApiError) as raised:
        await api.list("/x")
    assert raised.value.is_down


async def test_an_empty_list_may_be_null(server: tuple[Server, Api]) -> None:
    made, api = server
    made.answers = [says(raw("200 OK", '{"metadata": null, "items": null}'))]
    assert await api.list("/x") == []
