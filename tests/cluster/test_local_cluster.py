"""The whole life of a real cluster, beside the default one: up, DNS across nodes, murder, down, nothing left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvroll_cluster.layout import Layout, checkout_folder, layout_from
from kvroll_cluster.network import Network
from kvroll_cluster.processes import Processes
from kvroll_cluster.teardown import leftovers, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="kubelets and containers need root"),
    pytest.mark.skipif(shutil.which("go") is None, reason="the components are built with Go"),
]

INDEX = "1"
SERVE = "import http.server as h; h.HTTPServer(('0.0.0.0', 8080), h.SimpleHTTPRequestHandler).serve_forever()"
# A Service answers once kube-proxy has written its endpoints on the client's node, some time after the Pod is Ready.
FETCH = """
import sys, time, urllib.error, urllib.request
deadline_s = time.monotonic() + 60
while True:
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=5).status)
        break
    except (urllib.error.URLError, TimeoutError):
        if time.monotonic() > deadline_s:
            raise
        time.sleep(0.2)
"""
IMPORTS = "import json, ssl, sqlite3, os; print('imported as', os.getuid(), flush=True); "


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "KVROLL_CLUSTER")}
    paths = f"{checkout_folder() / 'cluster'}:{kept.get('PYTHONPATH', '')}"
    return {**kept, "KVROLL_CLUSTER_INDEX": INDEX, "KVROLL_CLUSTER_DIR": "", "PYTHONPATH": paths}


def launcher(*arguments: str) -> str:
    command = [sys.executable, "-m", "kvroll_cluster", *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def layout() -> Iterator[Layout]:
    layout = layout_from(environment())
    launcher("down")
    yield layout
    launcher("down")


@pytest.fixture(scope="module")
def binaries(layout: Layout) -> Path:
    return Path(launcher("build").strip())


@pytest.fixture(scope="module")
def kubectl(layout: Layout, binaries: Path) -> Any:
    def call(*arguments: str, stdin: str = "") -> str:
        command = [str(binaries / "kubectl"), f"--kubeconfig={layout.kubeconfig}", *arguments]
        done = subprocess.run(Processes(layout).in_network(command), capture_output=True, text=True, input=stdin)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    return call


def pod(name: str, node: str, user: int) -> dict[str, Any]:
    """A Pod of the host's Python that imports what a worker needs from the host, then serves its readiness probe."""
    mounts = json.loads(launcher("host-mounts", "-o", "json"))
    container = {
        "name": "python",
        "image": "localhost/kvroll:dev",
        "imagePullPolicy": "Never",
        "command": [sys.executable, "-c", IMPORTS + SERVE],
        "workingDir": "/work",
        "volumeMounts": mounts["volumeMounts"],
        "securityContext": {"runAsUser": user},
        "resources": {"limits": {"memory": "256Mi"}},
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "volumes": mounts["volumes"],
            "containers": [container],
            "terminationGracePeriodSeconds": 5,
        },
    }


def host_traces(layout: Layout) -> list[str]:
    """What an outsider would see of the cluster: read from /proc, /sys and ip, not by the launcher's own means."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
            groups = (folder / "cgroup").read_text()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX" and (f"{layout.state}/" in words or f"/{layout.cgroup}/" in groups):
            found.append(f"{folder.name}: {words[:80]}")
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"{layout.state}/" in line]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{layout.cgroup}")]
    links = subprocess.run(["ip", "-o", "address"], capture_output=True, text=True, check=True).stdout
    found += [line for line in links.splitlines() if layout.address in line or layout.nodes[0].bridge in line]
    return found + [str(path) for path in Path("/run/netns").glob(str(layout.netns))]


def test_a_cluster_lives_serves_and_leaves_nothing_behind(layout: Layout, kubectl: Any) -> None:
    assert "up in" in launcher("up")
    assert "already up" in launcher("up")
    assert f"export KUBECONFIG={layout.kubeconfig}" in launcher("env")
    assert kubectl("get", "nodes", "-o", "name").split() == ["node/n1", "node/n2"]

    items = [pod("server", "n1", 0), pod("client", "n2", 65532)]
    kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kubectl("expose", "pod", "server", "--port=80", "--target-port=8080")
    kubectl("wait", "--for=condition=Ready", "pod/server", "pod/client", "--timeout=120s")
    assert "imported as 65532" in kubectl("logs", "client")
    for name in ("server", "server.default.svc.cluster.local"):
        fetched = kubectl("exec", "client", "--", sys.executable, "-c", FETCH, f"http://{name}/")
        assert fetched.strip() == "200"
    kubectl("drain", "n2", "--force", "--ignore-daemonsets", "--timeout=60s")
    assert kubectl("get", "pods", "-o", "name").split() == ["pod/server"]

    # All die without a goodbye but one containerd; the container's own processes live on as orphans.
    for name, identity in Processes(layout).records().items():
        if name != "n2-containerd":
            os.kill(identity.pid, signal.SIGKILL)
    assert len(running(layout)) > 1

    network = Network(layout)
    assert len(network.leftovers_inside()) >= 4  # two bridges, the address, kube-proxy's tables
    launcher("down")
    assert leftovers(layout) == []
    assert host_traces(layout) == []
    assert [path.name for path in layout.state.iterdir()] == ["logs"]


def test_a_launcher_killed_half_way_leaves_nothing_that_down_does_not_find(layout: Layout, binaries: Path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "kvroll_cluster", "up"], env=environment())
    deadline_s = time.monotonic() + 120
    while not (layout.records / "n1-kubelet.json").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert len(running(layout)) >= 5
    launcher("down")
    assert leftovers(layout) == []
    assert host_traces(layout) == []
