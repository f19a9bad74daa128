"""`kvroll dashboard` over real HTTP, in front of an API server that answers from recorded objects."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from httpx_sse import connect_sse
from typer.testing import Result

from kvroll_cli.dashboard import serving
from kvroll_cli.dashboard.feed import ClusterLook
from kvroll_cli.kube.cluster import Cluster
from kvroll_cli.listener import bound
from tests.cli.conftest import Recorded
from tests.cli.recorded import drain, gate, plan, pool, wall

EVENTS = "/api/v1/namespaces/demo/events"
Open = Callable[..., httpx.Client]


def event(reason: str, at: str, name: str = "demo", **changes: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}.{reason}", "namespace": "demo"},
        "involvedObject": {"kind": "InferencePool", "name": name, "namespace": "demo"},
        "eventTime": at,
        "reason": reason,
        "message": f"about {reason}",
        "type": "Normal",
        **changes,
    }


@pytest.fixture
def demo(api: Recorded) -> Recorded:
    """The demo's pool in the middle of its roll."""
    api.listed("kvpools", pool(plan=plan(), gate=gate(), wall=wall()))
    api.listed("kvdrains", drain())
    happened = [
        event("DrainStarted", "2026-01-01T00:00:09.000000Z"),
        event("RolloutStarted", "2026-01-01T00:00:01.000000Z"),
        event("RolloutFailed", "2026-01-01T00:00:02.000000Z", name="another", type="Warning"),
    ]
    api.answers[EVENTS] = {"apiVersion": "v1", "kind": "EventList", "items": happened}
    return api


@pytest.fixture
def open_page(api: Recorded) -> Iterator[Open]:
    """Serves the dashboard, and a client of it."""
    running: list[tuple[Any, threading.Thread, httpx.Client]] = []

    def start(name: str | None = None) -> httpx.Client:
        cluster = Cluster.connect(namespace=None, all_namespaces=False, context=None)
        listener = bound(serving.HOST, 0)
        server = serving.server_of(ClusterLook(cluster, name), 0.05)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        client = httpx.Client(base_url=serving.address(listener), timeout=300)
        running.append((server, thread, client))
        return client

    yield start
    for server, thread, client in running:
        client.close()
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def test_the_document_holds_what_the_page_shows(demo: Recorded, open_page: Open) -> None:
    found = open_page().get("/pools.json").json()
    assert found["problem"] == ""
    (shown,) = found["pools"]
    assert (shown["namespace"], shown["name"]) == ("demo", "demo")
    assert {(g["id"], g["phase"], g["sessions"]) for g in shown["status"]["groups"]} >= {(1, "Draining", 5)}
    assert shown["status"]["gate"] == gate()
    assert shown["status"]["wall"] == wall()
    assert [(f["name"], f["ratio"]) for f in shown["progress"]["figures"]][1] == ("moved", 0.75)
    assert shown["notable"] == ["Progressing", "CapacityFeasible"]
    assert [e["reason"] for e in shown["events"]] == ["DrainStarted", "RolloutStarted"]  # newest first, and its own
    assert shown["drains"][0]["status"]["remaining"] == 5


def test_a_change_in_the_cluster_reaches_an_open_page(demo: Recorded, open_page: Open) -> None:
    with connect_sse(open_page(), "GET", "/events") as stream:
        following = stream.iter_sse()
        first = next(following)
        assert (first.event, stream.response.headers["content-type"]) == ("pools", "text/event-stream; charset=utf-8")
        assert json.loads(first.data)["pools"][0]["status"]["sessions"]["active"] == 18
        demo.listed("kvpools", pool(sessions={"active": 21}))
        seen = next(e for e in following if json.loads(e.data)["pools"][0]["status"]["sessions"]["active"] == 21)
        assert int(seen.id) > int(first.id)


def test_the_page_stays_while_the_api_server_is_away_and_says_so(demo: Recorded, open_page: Open) -> None:
    pools = demo.answers["/apis/kvroll.dev/v1alpha1/namespaces/demo/kvpools"]
    with connect_sse(open_page(), "GET", "/events") as stream:
        following = stream.iter_sse()
        assert json.loads(next(following).data)["problem"] == ""
        demo.listed("kvpools")
        demo.answers["/apis/kvroll.dev/v1alpha1/namespaces/demo/kvpools"] = (503, {"message": "no leader"})
        away = json.loads(next(following).data)
        assert (away["problem"], len(away["pools"])) == ("no leader", 1)
        demo.answers["/apis/kvroll.dev/v1alpha1/namespaces/demo/kvpools"] = pools
        assert json.loads(next(following).data)["problem"] == ""


def test_who_may_not_see_events_sees_the_rest(demo: Recorded, open_page: Open) -> None:
    demo.answers[EVENTS] = (403, {"message": "events is forbidden"})
    found = open_page().get("/pools.json").json()
    assert found["problem"] == "no events: events is forbidden"
    assert (len(found["pools"]), found["pools"][0]["events"]) == (1, [])


@pytest.mark.slow
def test_nobody_looks_while_nobody_follows(demo: Recorded, open_page: Open) -> None:
    client = open_page()
    client.get("/pools.json")
    time.sleep(0.3)  # the look under way ends
    before = len(demo.asked)
    time.sleep(0.5)
    assert len(demo.asked) == before
    demo.listed("kvpools", pool(sessions={"active": 30}))
    assert client.get("/pools.json").json()["pools"][0]["status"]["sessions"]["active"] == 30


@pytest.mark.parametrize("path", ["/", "/dashboard.css", "/dashboard.js", "/dom.js"])
def test_the_page_needs_nothing_from_elsewhere(demo: Recorded, open_page: Open, path: str) -> None:
    answer = open_page().get(path)
    assert answer.status_code == 200
    assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in answer.text
    assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
    for name in (
        "style=",
        "<style",
        "onclick",
        "innerHTML",
        "eval(",
    ):  # what the policy refuses, or what would read words as HTML
        assert name not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/pools.json", "/events", "/none"])
@pytest.mark.fast_where(path="/pools.json", method=("POST", "DELETE"))
@pytest.mark.fast_where(path="/none", method="PATCH")
def test_it_only_reads(demo: Recorded, open_page: Open, method: str, path: str) -> None:
    answer = open_page().request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert demo.patches == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8790", "169.254.169.254", "localhost.evil.example"])
def test_another_name_that_leads_here_is_refused(demo: Recorded, open_page: Open, host: str) -> None:
    assert open_page().get("/pools.json", headers={"Host": host}).status_code == 400


def test_localhost_is_this_machine_too(demo: Recorded, open_page: Open) -> None:
    assert open_page().get("/", headers={"Host": "localhost:8790"}).status_code == 200


def test_a_cluster_that_cannot_be_read_at_all_is_told_at_once(
    api: Recorded, kvroll: Callable[..., Result], capfd: pytest.CaptureFixture[str]
) -> None:
    assert kvroll("dashboard", "--port", "0").exit_code == 1
    assert "this cluster does not know kvroll.dev" in capfd.readouterr().err


@pytest.mark.slow
def test_ctrl_c_ends_it_though_a_page_is_open(demo: Recorded) -> None:
    command = [sys.executable, "-c", "from kvroll_cli.main import main; main()", "dashboard", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        address = said.split()[3].removesuffix(";")
        with httpx.Client(base_url=address, timeout=300) as client, connect_sse(client, "GET", "/events") as stream:
            assert next(stream.iter_sse()).event == "pools"
            process.send_signal(signal.SIGINT)
            _, complaints = process.communicate(timeout=300)
    assert (process.returncode, complaints) == (0, "")
