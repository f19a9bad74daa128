"""Bodies that strangers send: each gets its status in OpenAI's shape, and the connection serves the next request."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import httpx
import psutil
import pytest

from kvroll_gateway.openai import bodies
from kvroll_gateway.openai.bodies import decode
from kvroll_gateway.openai.errors import OpenAiError
from kvroll_gateway.serving import Listener
from tests.gateway.conftest import Bench, StartBench
from tests.gateway.hostile import COMPLETIONS, CORPUS, LENIENT, Hostile, valid

LIMIT = 128 << 20  # of what memory may grow: the largest body, its copies, and what the test itself holds


@pytest.fixture
async def wire(start: StartBench) -> AsyncIterator[tuple[Bench, int]]:
    """A gateway that listens on a port of its own: what is under the application is part of the answer."""
    bench = await start(body_seconds=2.0)
    async with Listener(bench.gateway, "127.0.0.1", 0) as listener:
        yield bench, listener.port
        await close_all()


def request_of(one: Hostile) -> bytes:
    headers = {"Host": "gateway", "Content-Type": "application/json", **one.headers}
    if one.chunked:
        headers["Transfer-Encoding"] = "chunked"
        body = b"".join(
            b"%x\r\n%b\r\n" % (len(part), part) for part in _parts(one.body, 1 << 20)
        ) + b"0\r\n\r\n"  # fmt: skip
    else:
        headers["Content-Length"] = str(len(one.body))
        body = one.body
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    return f"POST {one.path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def _parts(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


class Connection:
    """One connection, which is opened once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, one: Hostile) -> tuple[int, dict[str, str], bytes]:
        writing = asyncio.create_task(self._write(request_of(one)))
        answer = await read_answer(self.reader)
        await writing
        return answer

    async def _write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


_open: list[Connection] = []


async def connect(port: int) -> Connection:
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
    _open.append(connection)
    return connection


async def close_all() -> None:
    for connection in _open:
        connection.writer.close()
        with contextlib.suppress(OSError):
            await connection.writer.wait_closed()
    _open.clear()


GOOD = Hostile("good", COMPLETIONS, json.dumps(valid(COMPLETIONS)).encode(), 200)


def test_the_corpus_is_large_and_names_each_once() -> None:
    assert len(CORPUS) >= 300
    assert len({(one.name, one.path) for one in CORPUS}) == len(CORPUS)


# Every seventh is of every kind: the kinds stand in the corpus in rows longer than that, but the largest.
@pytest.mark.parametrize("corpus", [CORPUS[::7], pytest.param(CORPUS, marks=pytest.mark.slow)], ids=["some", "all"])
async def test_every_hostile_body_is_answered_and_the_connection_serves_on(
    wire: tuple[Bench, int], corpus: list[Hostile]
) -> None:
    bench, port = wire
    connection = await connect(port)
    process = psutil.Process()
    wrong, before = [], process.memory_info().rss
    for one in corpus:
        status, headers, body = await connection.send(one)
        error = json.loads(body).get("error") if status >= 400 else None
        if status != one.status or error is None or error.keys() != {"message", "type", "param", "code"}:
            wrong.append(f"{one.name}: {status} {body[:100]!r}, expected {one.status}")
        elif one.param is not None and not str(error["param"]).startswith(one.param[:20]):
            wrong.append(f"{one.name}: param {error['param']!r}, expected {one.param}")
        elif len(error["message"]) > 600 or error["type"] != "invalid_request_error":
            wrong.append(f"{one.name}: {error}")
        assert "connection" not in headers, one.name
        status, _, body = await connection.send(GOOD)
        assert status == 200, (one.name, body)
    assert not wrong, "\n".join(wrong)
    assert process.memory_info().rss - before < LIMIT
    assert bench.gateway.table.live == 0


@pytest.mark.parametrize("name", LENIENT)
async def test_what_openais_schema_allows_is_taken(wire: tuple[Bench, int], name: str) -> None:
    path, body, headers = LENIENT[name]
    connection = await connect(wire[1])
    status, _, answer = await connection.send(Hostile(name, path, json.dumps(body).encode(), 200, headers=headers))
    assert status == 200, answer


async def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large(wire: tuple[Bench, int]) -> None:
    """Its end need not come, and what comes behind the limit takes no memory."""
    connection = await connect(wire[1])
    connection.writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n")
    before = psutil.Process().memory_info().rss

    async def pour() -> None:
        part = b"%x\r\n%b\r\n" % (1 << 20, b" " * (1 << 20))
        for _ in range(300):
            connection.writer.write(part)
            await connection.writer.drain()

    pouring = asyncio.create_task(pour())
    status, _, _ = await read_answer(connection.reader)
    assert status == 413
    assert not pouring.done()
    await pouring
    assert psutil.Process().memory_info().rss - before < LIMIT
    connection.writer.write(b"0\r\n\r\n")
    assert (await connection.send(GOOD))[0] == 200


@pytest.mark.parametrize("declared", [40 << 20, 1 << 60])
async def test_a_declared_length_beyond_the_limit_is_refused_before_the_body(
    wire: tuple[Bench, int], declared: int
) -> None:
    connection = await connect(wire[1])
    connection.writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Length: {declared}\r\n\r\n".encode())
    assert (await read_answer(connection.reader))[0] == 413


@pytest.mark.parametrize("sent", [0, 30])
async def test_a_body_that_does_not_come_ends_in_time(start: StartBench, sent: int) -> None:
    bench = await start(body_seconds=0.3)
    async with Listener(bench.gateway, "127.0.0.1", 0) as listener:
        connection = await connect(listener.port)
        whole = request_of(GOOD)
        connection.writer.write(whole[: whole.index(b"\r\n\r\n") + 4 + sent])
        status, headers, body = await asyncio.wait_for(read_answer(connection.reader), 30)
        assert (status, json.loads(body)["error"]["code"]) == (408, "request_timeout")
        assert headers["connection"] == "close"
        await close_all()


async def test_a_client_that_goes_within_its_body_is_no_error(
    wire: tuple[Bench, int], capfd: pytest.CaptureFixture[str]
) -> None:
    connection = await connect(wire[1])
    connection.writer.write(request_of(GOOD)[:-5])
    await connection.writer.drain()
    await asyncio.sleep(0.1)
    connection.writer.close()
    await connection.writer.wait_closed()
    assert (await (await connect(wire[1])).send(GOOD))[0] == 200
    told = "".join(capfd.readouterr())
    assert "Traceback" not in told
    assert "request_crashed" not in told


@pytest.mark.parametrize(
    "head",
    [
        b"GARBAGE\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: g\r\n" + b"".join(b"X%d: y\r\n" % one for one in range(20_000)) + b"\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Length: nine\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/completions HTTP/1.1\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 50 + b"\r\n\r\n",  # TLS at a plain port
    ],
    ids=["garbage", "a huge header", "many headers", "a word as length", "negative", "two lengths", "bad chunk", "no host", "zeros", "tls"],
)  # fmt: skip
async def test_what_is_no_http_is_told_so_in_openais_shape(wire: tuple[Bench, int], head: bytes) -> None:
    connection = await connect(wire[1])
    connection.writer.write(head)
    status, headers, body = await asyncio.wait_for(read_answer(connection.reader), 30)
    assert status in (400, 431)
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert headers["connection"] == "close"
    assert (await (await connect(wire[1])).send(GOOD))[0] == 200


async def test_headers_that_do_not_end_are_not_waited_for(start: StartBench) -> None:
    bench = await start(body_seconds=0.5)
    async with Listener(bench.gateway, "127.0.0.1", 0) as listener:
        connection = await connect(listener.port)
        for part in (b"POST /v1/comp", b"letions HTTP/1.1\r\n", b"Host: g\r\n"):
            connection.writer.write(part)
            await asyncio.sleep(0.05)
        assert await asyncio.wait_for(connection.reader.read(), 30) == b""
        await close_all()


async def test_negative_token_ids_are_told_as_such(start: StartBench) -> None:
    bench = await start()
    answer = await bench.http.post(COMPLETIONS, json=valid(COMPLETIONS, prompt=[1, -7]))
    assert answer.json()["error"]["message"] == "`prompt`: expected token ids of 0 to 4294967295, found -7"
    assert answer.json()["error"]["param"] == "prompt"


async def test_a_wrong_method_says_which_is_right(start: StartBench) -> None:
    bench = await start()
    answer: httpx.Response = await bench.http.get(COMPLETIONS)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["code"] == "http_error"


def test_as_many_values_as_the_limit_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_VALUES", 10)
    assert decode(b'{"a": [1, 2, 3, 4, 5, 6, 7]}') == {"a": [1, 2, 3, 4, 5, 6, 7]}
    with pytest.raises(OpenAiError) as error:
        decode(b'{"a": [1, 2, 3, 4, 5, 6, 7, 8, 9]}')
    assert error.value.status == 413
