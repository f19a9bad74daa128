"""How objects come and go: owners, namespaces, Pods on a node, events with an end, a killed server."""

import asyncio
import os
import signal
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvroll_local.api.access import Access
from kvroll_local.api.objects.expiry import EVENT_HOURS
from kvroll_local.api.server import ApiServer
from tests.local.api.conftest import CRDS, client_of

pytestmark = pytest.mark.slow

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}


def config(name: str, *owners: dict[str, Any], finalizers: tuple[str, ...] = ()) -> dict[str, Any]:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in owners
    ]
    return {"metadata": {"name": name, "ownerReferences": references, "finalizers": [*finalizers]}}


def pod(name: str = "p") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}


async def made(api: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await api.post(path, json=body)).raise_for_status().json()
    return found


async def names(api: httpx.AsyncClient, path: str) -> list[str]:
    return [o["metadata"]["name"] for o in (await api.get(path)).json()["items"]]


async def test_dependents_go_with_their_last_owner(api: httpx.AsyncClient) -> None:
    one, two = await made(api, MAPS, config("one")), await made(api, MAPS, config("two"))
    child = await made(api, MAPS, config("child", one, two))
    await made(api, MAPS, config("grandchild", child))
    await made(api, MAPS, config("held", one, finalizers=("kvroll.dev/hold",)))
    await api.delete(f"{MAPS}/one")
    assert await names(api, MAPS) == ["child", "grandchild", "held", "two"]
    assert "deletionTimestamp" in (await api.get(f"{MAPS}/held")).json()["metadata"]
    await api.patch(f"{MAPS}/held", json={"metadata": {"finalizers": None}}, headers=MERGE)
    await api.delete(f"{MAPS}/two")
    assert await names(api, MAPS) == []


async def test_garbage_of_a_kill_between_two_deletions_is_collected_at_the_start(
    tmp_path: Path, crds: list[dict[str, Any]]
) -> None:
    access = Access.load(tmp_path)
    async with ApiServer(tmp_path, crds, access) as server, client_of(server) as api:
        owner = await made(api, MAPS, config("owner"))
        await made(api, MAPS, config("child", owner))
        kind = server.objects.catalog.find("", "v1", "configmaps")
        assert kind is not None
        key = next(key for key, _ in server.store.all() if key.name == "owner")
        server.store.remove(key)  # and not its dependents: the process ends here
        assert await names(api, MAPS) == ["child"]
    async with ApiServer(tmp_path, crds, access) as server, client_of(server) as api:
        assert await names(api, MAPS) == []


async def test_a_namespace_goes_when_all_in_it_is_gone(api: httpx.AsyncClient) -> None:
    await made(api, "/api/v1/namespaces", {"metadata": {"name": "n"}})
    inside = MAPS.replace("/default/", "/n/")
    await made(api, inside, config("free"))
    await made(api, inside, config("held", finalizers=("kvroll.dev/hold",)))
    assert (await api.delete("/api/v1/namespaces/n")).json()["status"]["phase"] == "Terminating"
    assert await names(api, inside) == ["held"]
    refused = await api.post(inside, json=config("late"))
    assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden")
    await api.patch(f"{inside}/held", json={"metadata": {"finalizers": None}}, headers=MERGE)
    assert (await api.get("/api/v1/namespaces/n")).status_code == 404
    assert (await api.delete("/api/v1/namespaces/default")).status_code == 403


async def test_a_bound_pod_waits_for_its_node(api: httpx.AsyncClient) -> None:
    await made(api, PODS, pod())
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "here"},
    }
    assert (await api.post(f"{PODS}/p/binding", json=binding)).status_code == 201
    found = (await api.get(f"{PODS}/p")).json()
    assert found["spec"]["nodeName"] == "here"
    assert [(c["type"], c["status"]) for c in found["status"]["conditions"]] == [("PodScheduled", "True")]
    assert (await api.post(f"{PODS}/p/binding", json=binding)).status_code == 409

    deleted = (await api.delete(f"{PODS}/p")).json()
    assert (deleted["kind"], deleted["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 30)
    assert datetime.fromisoformat(deleted["metadata"]["deletionTimestamp"]) > datetime.now(UTC), "the end of the grace"
    shorter = (await api.delete(f"{PODS}/p", params={"gracePeriodSeconds": 5})).json()
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    longer = (await api.delete(f"{PODS}/p", params={"gracePeriodSeconds": 50})).json()
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 5
    status = {"status": {"phase": "Running"}}
    assert (await api.patch(f"{PODS}/p/status", json=status, headers=MERGE)).json()["status"]["phase"] == "Running"
    await api.delete(f"{PODS}/p", params={"gracePeriodSeconds": 0})
    assert (await api.get(f"{PODS}/p")).status_code == 404


async def test_a_finished_pod_goes_at_once(api: httpx.AsyncClient) -> None:
    await made(api, PODS, pod())
    await api.post(f"{PODS}/p/binding", json={"target": {"name": "here"}})
    await api.patch(f"{PODS}/p/status", json={"status": {"phase": "Failed"}}, headers=MERGE)
    await api.delete(f"{PODS}/p")
    assert (await api.get(f"{PODS}/p")).status_code == 404


async def test_events_are_forgotten_after_their_time(server: ApiServer, api: httpx.AsyncClient) -> None:
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    soon = datetime.now(UTC) + timedelta(hours=EVENT_HOURS) - timedelta(minutes=1)
    later, now = soon + timedelta(minutes=2), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    await made(api, events, {"metadata": {"name": "once"}, "reason": "A", "eventTime": now})
    again = {"count": 2, "lastObservedTime": later.strftime("%Y-%m-%dT%H:%M:%S.000000Z")}
    await made(api, events, {"metadata": {"name": "again"}, "reason": "A", "eventTime": now, "series": again})
    server.objects.sweep(soon)
    assert await names(api, events) == ["again", "once"]
    server.objects.sweep(later)
    assert await names(api, events) == ["again"]
    server.objects.sweep(later + timedelta(hours=EVENT_HOURS, seconds=1))
    assert await names(api, events) == []


async def _write(api: httpx.AsyncClient, name: str, acknowledged: dict[str, str]) -> None:
    i = 0
    while True:
        o = await made(api, MAPS, config(f"{name}-{i}"))
        acknowledged[o["metadata"]["name"]] = o["metadata"]["resourceVersion"]
        i += 1


@pytest.mark.slow
async def test_kill_9_loses_no_acknowledged_write(tmp_path: Path) -> None:
    state, port = tmp_path / "state", tmp_path / "port"
    acknowledged: dict[str, str] = {}
    for turn in range(3):
        port.unlink(missing_ok=True)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kvroll_local.api", "--state", str(state), "--port-file", str(port),
            "--crd", *map(str, CRDS.glob("*.yaml")), env={**os.environ, "PYTHONPATH": "local"},
        )  # fmt: skip
        try:
            while not port.exists():
                assert process.returncode is None
                await asyncio.sleep(0.02)
            access = Access.load(state)
            trust = ssl.create_default_context(cafile=str(access.certificate))
            headers = {"Authorization": f"Bearer {access.token}"}
            url = f"https://127.0.0.1:{port.read_text()}"
            async with httpx.AsyncClient(
                base_url=url, verify=trust, headers=headers, trust_env=False, timeout=30
            ) as api:
                found = {
                    o["metadata"]["name"]: o["metadata"]["resourceVersion"]
                    for o in (await api.get(MAPS)).json()["items"]
                }
                assert acknowledged.items() <= found.items(), "an acknowledged write is gone"
                assert len(found) - len(acknowledged) <= 4, "more unacknowledged writes than there were writers"
                acknowledged = found

                writers = [asyncio.create_task(_write(api, f"t{turn}-w{writer}", acknowledged)) for writer in range(4)]
                wanted = len(acknowledged) + 40
                while len(acknowledged) < wanted:
                    await asyncio.sleep(0.01)
                    for writer in writers:
                        assert not writer.done(), f"a writer ended before the kill: {writer.exception()!r}"
                process.send_signal(signal.SIGKILL)
                await asyncio.gather(*writers, return_exceptions=True)
                # Waited for before any other signal: a second one would look for the process first, and take its exit code from
                # who waits for it.
                assert await process.wait() == -signal.SIGKILL
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    versions = sorted(map(int, acknowledged.values()))
    assert len(versions) == len(set(versions)), "a version was given out twice"


async def test_quantities_of_a_pod_are_strings_however_they_were_written(api: httpx.AsyncClient) -> None:
    resources = {"limits": {"nvidia.com/gpu": 1, "cpu": 0.5, "memory": "1Gi"}, "requests": {"cpu": 0}}
    container = {"name": "main", "image": "none", "command": ["true"], "resources": resources}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gpu"}, "spec": {"containers": [container]}}
    made = await api.post("/api/v1/namespaces/default/pods", json=body)
    assert made.status_code == 201
    answered = made.json()["spec"]["containers"][0]["resources"]
    assert answered["limits"] == {"nvidia.com/gpu": "1", "cpu": "0.5", "memory": "1Gi"}
    assert answered["requests"] == {"cpu": "0"}
