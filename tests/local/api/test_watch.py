"""Watches over HTTP: what kopf, the gateway and kubectl rely on."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from kvroll_local.api.server import ApiServer
from tests.local.api.conftest import POOLS, client_of, pool

MAPS = "/api/v1/namespaces/default/configmaps"


def config(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {}}


async def lines(client: httpx.AsyncClient, path: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
    async with client.stream("GET", path, params={"watch": "true", **query}, timeout=60) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            yield json.loads(line)


def brief(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


async def test_a_watch_goes_on_from_the_version_of_a_list(api: httpx.AsyncClient) -> None:
    await api.post(MAPS, json=config("a"))
    version = (await api.get(MAPS)).json()["metadata"]["resourceVersion"]
    await api.post(MAPS, json=config("b"))
    await api.delete(f"{MAPS}/a")
    await api.post(POOLS, json=pool())
    found = [
        event async for event in lines(api, MAPS, resourceVersion=version, timeoutSeconds=1, allowWatchBookmarks="true")
    ]
    assert [brief(event) for event in found] == [("ADDED", "b"), ("DELETED", "a"), ("BOOKMARK", "")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in found]
    assert versions == sorted(versions), "the deletion has a version of its own, the bookmark the newest"
    assert str(versions[-1]) == (await api.get(MAPS)).json()["metadata"]["resourceVersion"]


@pytest.mark.slow
async def test_what_no_longer_matches_a_selector_is_deleted_to_its_watcher(api: httpx.AsyncClient) -> None:
    version = (await api.get(MAPS)).json()["metadata"]["resourceVersion"]
    await api.post(MAPS, json=config("a", app="x"))
    for labels in ({"app": "y"}, {"app": "x"}, {"app": "x", "more": "z"}):
        changed = {"metadata": {"labels": labels}}
        await api.patch(f"{MAPS}/a", json=changed, headers={"Content-Type": "application/merge-patch+json"})
    found = [e async for e in lines(api, MAPS, resourceVersion=version, labelSelector="app=x", timeoutSeconds=1)]
    assert [event["type"] for event in found] == ["ADDED", "DELETED", "ADDED", "MODIFIED"]


@pytest.mark.slow
async def test_kubectls_watch_list_ends_its_initial_events_with_a_bookmark(api: httpx.AsyncClient) -> None:
    await api.post(MAPS, json=config("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    first, second = [e async for e in lines(api, MAPS, timeoutSeconds=1, **query)][:2]
    assert brief(first) == ("ADDED", "a")
    assert second["type"] == "BOOKMARK"
    assert second["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    refused = await api.get(MAPS, params={"watch": "true", "sendInitialEvents": "true"})
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")


async def test_a_version_that_is_forgotten_or_never_was_is_410_in_the_stream(
    server: ApiServer, api: httpx.AsyncClient
) -> None:
    server.store.keep(0)
    for version in (1, server.store.version + 1):
        (only,) = [event async for event in lines(api, MAPS, resourceVersion=version, timeoutSeconds=5)]
        assert (only["type"], only["object"]["code"], only["object"]["reason"]) == ("ERROR", 410, "Expired")


@pytest.mark.slow
async def test_a_watcher_that_is_too_slow_is_sent_to_list_again(server: ApiServer, api: httpx.AsyncClient) -> None:
    """A client that does not read: the server's buffers fill, the log moves on, and the next that it gets is the 410."""
    server.store.keep(8)
    version = (await api.get(MAPS)).json()["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "120"}
    merge = {"Content-Type": "application/merge-patch+json"}
    await api.post(MAPS, json=config("a"))
    async with client_of(server) as slow, slow.stream("GET", MAPS, params=query) as answer:
        for i in range(150):
            await api.patch(f"{MAPS}/a", json={"data": {"fill": f"{i:06}" * 20_000}}, headers=merge)
        told = [json.loads(line) async for line in answer.aiter_lines()]
    assert [event["type"] for event in told[:-1]] == ["ADDED"] + ["MODIFIED"] * (len(told) - 2)
    assert (told[-1]["type"], told[-1]["object"]["code"]) == ("ERROR", 410)
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in told[:-1]]
    assert versions == [*range(versions[0], versions[0] + len(versions))], "nothing is left out before the 410"


@pytest.mark.slow
async def test_many_watchers_all_see_everything_in_order(server: ApiServer) -> None:
    async def follow(client: httpx.AsyncClient, version: str) -> list[tuple[str, str]]:
        seen = []
        async for event in lines(client, MAPS, resourceVersion=version, timeoutSeconds=60):
            seen.append((event["type"], event["object"]["metadata"]["name"]))
            if seen[-1] == ("DELETED", "last"):
                break
        return seen

    async with client_of(server) as client:
        version = (await client.get(MAPS)).json()["metadata"]["resourceVersion"]
        clients = [client_of(server) for _ in range(25)]
        followers = [asyncio.create_task(follow(one, version)) for one in clients for _ in range(2)]
        names = [f"c{i}" for i in range(20)]
        await asyncio.gather(*(client.post(MAPS, json=config(name)) for name in names))
        await client.post(MAPS, json=config("last"))
        await client.delete(f"{MAPS}/last")
        stories = await asyncio.gather(*followers)
        for one in clients:
            await one.aclose()
    assert all(story == stories[0] for story in stories)
    assert {name for what, name in stories[0] if what == "ADDED"} == {*names, "last"}
