"""The operator's shell on a real API server: one bad object, a connection that is cut, a refused Pod, a deletion that cannot be drained."""

import json
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.operator import test_operator_on_cluster as base
from tests.operator.test_operator_on_cluster import NAMESPACE, PORT, Operator, crds, kubectl, pool, wait_complete

__all__ = ["crds"]
pytestmark = base.pytestmark


class Proxy:
    """Passes bytes on to the API server, until it is told to cut every connection and take no other."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.is_cut = False
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self.is_cut = True
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self.is_cut:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._open |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            end.close()
            self._open.discard(end)

    def close(self) -> None:
        self.cut()
        self._listening.close()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    """The operator's KUBECONFIG leads through it; kubectl's in this process does not."""
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    cluster = config["clusters"][0]["cluster"]
    host, port = cluster["server"].removeprefix("https://").split(":")
    made = Proxy((host, int(port)))
    cluster["server"] = f"https://127.0.0.1:{made.port}"
    # Its certificate need not be for the proxy's address.
    cluster.pop("certificate-authority-data", None)
    cluster["insecure-skip-tls-verify"] = True
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    yield made
    made.close()


@pytest.fixture
def operator(tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    log = tmp_path / "operator.log"
    made = Operator(log)
    with monkeypatch.context() as patched:
        patched.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        made.start()
    yield made
    proxy.is_cut = False
    kubectl("delete", "-n", NAMESPACE, "kvpool", "--all", "--timeout=120s")
    kubectl("delete", "-n", NAMESPACE, "resourcequota", "--all")
    assert made.stop() == 0


def healthz() -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/healthz", timeout=5) as answer:
        return int(answer.status)


def condition(kind: str, name: str = "stub") -> tuple[str, str, str]:
    shown = json.loads(kubectl("get", "-n", NAMESPACE, f"kvpool/{name}", "-o", "json")).get("status") or {}
    found: dict[str, str] = next((c for c in shown.get("conditions", []) if c["type"] == kind), {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def is_refused(name: str) -> Callable[[], bool]:
    return lambda: condition("SpecAccepted", name)[0] == "False"


def make(name: str = "stub", **spec: Any) -> None:
    body = pool(**{"replicas": 1, **spec})
    body["metadata"]["name"] = name
    kubectl("create", "-f", "-", stdin=json.dumps(body))


def test_one_bad_object_stops_one_object(operator: Operator) -> None:
    bad = pool()["spec"]["template"]
    bad["spec"]["terminationGracePeriodSeconds"] = "120s"
    make("bad", template=bad)
    make("typo", template={"spec": {"containers": [{"name": "engine", "imagePullPolice": "Never"}]}})
    make()
    wait_complete()
    for name, said in (("bad", "120s"), ("typo", "imagePullPolice")):
        until(is_refused(name), f"{name} was accepted")
        assert condition("SpecAccepted", name)[1] == "TemplateInvalid"
        assert said in condition("SpecAccepted", name)[2]
    (pod,) = base.worker_pods()
    labels = ("kvroll.dev/group-", "kvroll.dev/pool-", "kvroll.dev/index=oops")
    kubectl("label", "-n", NAMESPACE, f"pod/{pod}", *labels, "--overwrite")
    until(lambda: pod in base.worker_pods(), "its labels were not written back")
    (revision,) = kubectl(
        "get", "-n", NAMESPACE, "controllerrevision", "-o", "name", "-l", "kvroll.dev/pool=stub"
    ).split()
    kubectl("annotate", "-n", NAMESPACE, revision, "kvroll.dev/done=oops,x", "--overwrite")
    until(lambda: condition("Degraded")[1] == "ObjectUnreadable", "the record was read")
    assert healthz() == 200
    kubectl("annotate", "-n", NAMESPACE, revision, "kvroll.dev/done-")
    until(lambda: condition("Degraded")[1] == "None", "the record is put right")


def test_an_api_server_that_is_away_ends_nothing(operator: Operator, proxy: Proxy) -> None:
    make()
    wait_complete()
    proxy.cut()
    base.patch(precision={"kvCache": "int8"})
    time.sleep(15)
    assert healthz() == 200
    proxy.is_cut = False
    until(lambda: base.status()["observedGeneration"] == 2, "the spec was not seen")
    wait_complete()
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5) as answer:
        page = answer.read().decode()
    assert 'kvroll_operator_api_requests_total{method="GET",problem="Unreachable"}' in page


def test_a_refused_pod_is_shown_until_there_is_room(operator: Operator) -> None:
    make()
    wait_complete()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": NAMESPACE}}
    kubectl("create", "-f", "-", stdin=json.dumps({**quota, "spec": {"hard": {"pods": "1"}}}))
    kubectl("scale", "-n", NAMESPACE, "kvpool/stub", "--replicas=2")
    until(lambda: condition("CapacityFeasible")[1] == "QuotaExceeded", "the refusal is not shown")
    assert condition("Degraded")[1] == condition("Stalled")[1] == "CreateRefused"
    assert "few" in condition("Degraded")[2]
    assert "CreateRefused" in kubectl("get", "events", "-n", NAMESPACE, "-o", "jsonpath={.items[*].reason}").split()
    kubectl("delete", "-n", NAMESPACE, "resourcequota/few")
    wait_complete()
    until(lambda: condition("Degraded")[1] == "None", "the refusal is shown for ever", 200)


def test_deleting_a_pool_ends_although_its_worker_never_empties(operator: Operator) -> None:
    make(engine={"image": "localhost/kvroll:dev", "args": ["--never-empty"]}, sessions={"drainDeadlineSeconds": 5})
    wait_complete()
    kubectl("delete", "-n", NAMESPACE, "kvpool/stub", "--wait=false")
    until(lambda: "stub" not in kubectl("get", "-n", NAMESPACE, "kvpool", "-o", "name", check=False), "not released")
