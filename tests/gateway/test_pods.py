"""Which Pods are workers, and how their list is followed while versions expire and the API server goes away."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client

from kvroll_gateway.routing.pods import apply_event, follow_pods, targets
from kvroll_gateway.routing.workers import WorkerTarget, pod_target


def pod(name: str, ip: str = "10.0.0.1", version: str = "1", *, admitted: bool = True, **change: Any) -> dict[str, Any]:
    labels = {"kvroll.dev/pool": "chat", **({"kvroll.dev/admitted": "true"} if admitted else {})}
    metadata = {"name": name, "uid": "uid-" + name, "labels": labels, "resourceVersion": version, **change}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": []},
        "status": {"phase": "Running", "podIP": ip},
    }


def test_an_admitted_running_pod_is_a_worker() -> None:
    assert pod_target(pod("a")) == WorkerTarget("uid-a", "a", "10.0.0.1:7070", admitted=True)


def test_a_terminating_pod_keeps_its_stream_and_gets_nothing_new() -> None:
    target = pod_target(pod("a", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert target is not None
    assert not target.admitted


def test_a_pod_that_is_not_admitted_is_attached_for_moves() -> None:
    target = pod_target(pod("a", admitted=False))
    assert target is not None
    assert not target.admitted


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_only_running_pods_are_workers(phase: str) -> None:
    assert pod_target({**pod("a"), "status": {"phase": phase, "podIP": "10.0.0.1"}}) is None


def test_pods_without_an_address_or_a_pool_are_no_workers() -> None:
    assert pod_target({**pod("a"), "status": {"phase": "Running"}}) is None
    assert pod_target(pod("a", labels={"app": "other"})) is None


def test_port_and_address_families() -> None:
    spec = {
        "containers": [
            {"name": "engine", "ports": [{"name": "http", "containerPort": 1}, {"name": "grpc", "containerPort": 9}]}
        ]
    }
    target = pod_target({**pod("a", ip="fd00::1"), "spec": spec})
    assert target is not None
    assert target.address == "[fd00::1]:9"


def test_events_change_the_table_and_bookmarks_do_not() -> None:
    table = {"uid-a": pod("a")}
    apply_event(table, "ADDED", pod("b"))
    apply_event(table, "MODIFIED", pod("a", admitted=False))
    apply_event(table, "BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    assert [(target.name, target.admitted) for target in targets(table)] == [("a", False), ("b", True)]
    apply_event(table, "DELETED", pod("a"))
    assert [target.name for target in targets(table)] == ["b"]


class ApiServer:
    """An API server's Pod endpoint: `pods` is what a list says, `events` what each watch is told before it ends."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.watches: list[list[tuple[str, dict[str, Any]]]] = []
        self.lists = 0
        self.fail_lists = 0
        self.silent = False
        self.failures = 0
        self.watched_versions: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.query["labelSelector"] == "kvroll.dev/pool"
        if self.silent:
            await asyncio.sleep(60)
        if request.query.get("watch") not in ("true", "True"):
            self.lists += 1
            if self.fail_lists:
                self.fail_lists -= 1
                return web.json_response({"kind": "Status", "code": 503}, status=503)
            return web.json_response(
                {
                    "kind": "PodList",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": str(self.lists)},
                    "items": self.pods,
                }
            )
        self.watched_versions.append(request.query["resourceVersion"])
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for kind, body in self.watches.pop(0) if self.watches else []:
            await answer.write(json.dumps({"type": kind, "object": body}).encode() + b"\n")
        if not self.watches:
            await asyncio.sleep(30)
        return answer


@asynccontextmanager
async def following(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[list[str]]]:
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/pods", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    plain = client.ApiClient
    monkeypatch.setattr(client, "ApiClient", lambda: plain(client.Configuration(host=host)))
    seen: list[list[str]] = []

    def failed() -> None:
        api.failures += 1

    task = asyncio.create_task(follow_pods("ns", lambda found: seen.append([target.name for target in found]), failed))
    yield seen
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await runner.cleanup()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_list_then_a_watch_from_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiServer()
    api.pods = [pod("a")]
    api.watches = [[("ADDED", pod("b")), ("DELETED", pod("a"))]]
    async with following(api, monkeypatch) as seen:
        await until(lambda: seen and seen[-1] == ["b"])
    assert seen == [["a"], ["a", "b"], ["b"]]
    assert api.watched_versions == ["1"]


async def test_an_expired_version_means_a_new_list(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiServer()
    api.pods = [pod("a")]
    gone = {
        "kind": "Status",
        "apiVersion": "v1",
        "code": 410,
        "reason": "Expired",
        "message": "too old resource version",
    }
    api.watches = [[("ERROR", gone)], [("ADDED", pod("c"))]]
    async with following(api, monkeypatch) as seen:
        await until(lambda: seen[-1:] == [["a", "c"]])
    assert api.lists == 2
    assert api.watched_versions == ["1", "2"]


async def test_an_api_server_that_is_away_changes_nothing_and_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiServer()
    api.pods = [pod("a")]
    api.fail_lists = 1
    async with following(api, monkeypatch) as seen:
        await until(lambda: seen)
    assert seen == [["a"]]
    assert api.lists == 2


async def test_a_watch_that_ended_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiServer()
    api.pods = [pod("a")]
    bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}
    api.watches = [[("ADDED", pod("b", version="5"))], [("BOOKMARK", bookmark)], [("ADDED", pod("c", version="12"))]]
    async with following(api, monkeypatch) as seen:
        await until(lambda: seen[-1:] == [["a", "b", "c"]])
    assert (api.lists, api.failures) == (1, 0)
    assert api.watched_versions == ["1", "5", "9"]


@pytest.mark.parametrize("when", ["list", "watch"])
async def test_an_api_server_that_accepts_and_never_answers_is_noticed(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr("kvroll_gateway.routing.pods._WATCH_SECONDS", 0.3)
    monkeypatch.setattr("kvroll_gateway.routing.pods._ANSWER_SECONDS", 0.3)
    api = ApiServer()
    api.pods = [pod("a")]
    api.silent = when == "list"
    async with following(api, monkeypatch) as seen:
        if when == "watch":
            await until(lambda: seen)
            api.silent = True
        await until(lambda: api.failures)
        api.pods, api.silent = [pod("a"), pod("b")], False
        await until(lambda: seen[-1:] == [["a", "b"]])
