"""What is left out on purpose is refused by name, in a Status that says what would do it; and the few doors of a Pod."""

import asyncio
from typing import Any

import httpx
import pytest

from kvroll_local.api.pod_logs import log_path
from kvroll_local.api.server import ApiServer
from tests.local.api.conftest import POOLS, pool

pytestmark = pytest.mark.slow

PODS = "/api/v1/namespaces/default/pods"


def words_of(answer: httpx.Response, code: int, reason: str) -> str:
    status = answer.json()
    assert (answer.status_code, status["kind"], status["reason"], status["code"]) == (code, "Status", reason, code), (
        status
    )
    return str(status["message"])


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/apis/batch/v1/namespaces/default/jobs", "source Builtin"),
        ("/api/v1/namespaces/default/persistentvolumeclaims", "file://"),
        ("/api/v1/namespaces/default/secrets", "secrets"),
        ("/api/v1/nodes", "one machine"),
        ("/apis/apps/v1/namespaces/default/deployments", "deployments.apps"),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", "nothing is elected"),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "the server was started with"),
        ("/apis/example.com/v1/things", "Kubernetes cluster"),
    ],
)
@pytest.mark.fast_where(word=("source Builtin", "Kubernetes cluster"))
async def test_a_kind_that_is_not_served_says_so(api: httpx.AsyncClient, path: str, word: str) -> None:
    for method in ("GET", "POST"):
        words = words_of(await api.request(method, path, json={}), 404, "NotFound")
        assert "embedded API server does not serve" in words
        assert word in words


@pytest.fixture
async def served_pod(api: httpx.AsyncClient) -> dict[str, Any]:
    ports = [{"name": "http", "containerPort": 7071}]
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "none", "ports": ports}]}}
    made: dict[str, Any] = (await api.post(PODS, json=body)).raise_for_status().json()
    return made


@pytest.mark.parametrize("door", ["exec", "attach", "portforward", "eviction", "ephemeralcontainers", "resize"])
@pytest.mark.fast_where(door=("exec", "resize"))
async def test_doors_of_a_pod_that_are_not_there(api: httpx.AsyncClient, served_pod: dict[str, Any], door: str) -> None:
    words = words_of(await api.post(f"{PODS}/p/{door}", json={}), 501, "NotImplemented")
    assert f"pods/{door}" in words
    assert "embedded API server" in words


async def test_deletions_that_keep_or_wait_for_dependents_are_refused(api: httpx.AsyncClient) -> None:
    await api.post(POOLS, json=pool())
    for policy in ("Orphan", "Foreground"):
        words = words_of(
            await api.request("DELETE", f"{POOLS}/chat", json={"propagationPolicy": policy}), 501, "NotImplemented"
        )
        assert "Background" in words
    assert (await api.get(f"{POOLS}/chat")).status_code == 200


async def test_bodies_that_are_not_read(api: httpx.AsyncClient) -> None:
    protobuf = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    assert "send JSON" in words_of(
        await api.post(POOLS, content=b"k8s\0", headers=protobuf), 415, "UnsupportedMediaType"
    )
    words_of(await api.post(POOLS, content=b"{", headers={"Content-Type": "application/json"}), 400, "BadRequest")
    words_of(await api.post(POOLS, json=[1]), 400, "BadRequest")
    words_of(await api.post(POOLS, json={"metadata": [1]}), 400, "BadRequest")
    words_of(await api.post(POOLS, content=b'"' + b"x" * 4_000_000 + b'"'), 413, "RequestEntityTooLarge")


async def test_lists_of_the_past_are_refused(server: ApiServer, api: httpx.AsyncClient) -> None:
    words_of(await api.get(POOLS, params={"continue": "abc"}), 410, "Expired")
    words_of(await api.get(POOLS, params={"resourceVersion": server.store.version + 5}), 504, "Timeout")
    words_of(await api.get(POOLS, params={"resourceVersion": 1, "resourceVersionMatch": "Exact"}), 410, "Expired")
    words_of(await api.get(POOLS, params={"resourceVersion": "x"}), 400, "BadRequest")


async def test_logs_of_a_pod(server: ApiServer, api: httpx.AsyncClient, served_pod: dict[str, Any]) -> None:
    log = f"{PODS}/p/log"
    assert (await api.get(log)).text == ""
    path = log_path(server.state, served_pod["metadata"]["uid"], "main")
    path.parent.mkdir(parents=True)
    path.write_text("one\ntwo\nthree\n")
    assert (await api.get(log)).text == "one\ntwo\nthree\n"
    assert (await api.get(log, params={"tailLines": 2, "container": "main"})).text == "two\nthree\n"
    assert (await api.get(log, params={"tailLines": 0})).text == ""
    assert (await api.get(log, params={"limitBytes": 5})).text == "one\nt"
    assert "previous terminated" in words_of(await api.get(log, params={"previous": "true"}), 400, "BadRequest")
    assert "expected one of main" in words_of(await api.get(log, params={"container": "x"}), 400, "BadRequest")
    assert "timestamps" in words_of(await api.get(log, params={"timestamps": "true"}), 501, "NotImplemented")


async def test_a_followed_log_goes_on_over_a_rotation(
    server: ApiServer, api: httpx.AsyncClient, served_pod: dict[str, Any]
) -> None:
    path = log_path(server.state, served_pod["metadata"]["uid"], "main")
    path.parent.mkdir(parents=True)
    path.write_text("one\n")
    async with api.stream("GET", f"{PODS}/p/log", params={"follow": "true"}) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "one"
        path.rename(path.with_suffix(".log.1"))
        path.write_text("two\n")
        assert await anext(lines) == "two"
        with path.open("a") as file:
            file.write("three\n")
        assert await anext(lines) == "three"


async def test_the_proxy_of_a_pod_asks_its_own_address(api: httpx.AsyncClient, served_pod: dict[str, Any]) -> None:
    assert "no address yet" in words_of(await api.get(f"{PODS}/p:7071/proxy/metrics"), 503, "ServiceUnavailable")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode().split()[1]
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(line)}\r\nConnection: close\r\n\r\n{line}".encode())
        writer.close()

    worker = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = worker.sockets[0].getsockname()[1]
    merge = {"Content-Type": "application/merge-patch+json"}
    await api.patch(f"{PODS}/p/status", json={"status": {"podIP": "127.0.0.1"}}, headers=merge)
    found = await api.get(f"{PODS}/p:{port}/proxy/report", params={"a": "b"})
    assert (found.status_code, found.text) == (200, "/report?a=b")
    worker.close()
    await worker.wait_closed()
    assert "error trying to reach service" in words_of(
        await api.get(f"{PODS}/p:{port}/proxy/x"), 503, "ServiceUnavailable"
    )
