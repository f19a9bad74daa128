"""Brings a cluster up, in the order in which its parts need each other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kvroll_cluster import certificates, cgroups, configs, control_plane, images, nodes, objects
from kvroll_cluster.errors import ClusterError
from kvroll_cluster.layout import Layout
from kvroll_cluster.network import Network
from kvroll_cluster.packages import cni_folder
from kvroll_cluster.processes import Processes, boot_id, clean_environment

API_WAIT_S = 60.0
NODES_WAIT_S = 90.0
RESOLV_CONF = Path("/etc/resolv.conf")


class Startup:
    """One run of `up`, after whatever lay there before was removed."""

    def __init__(self, layout: Layout, binaries: Path) -> None:
        self.layout = layout
        self.binaries = binaries
        self.processes = Processes(layout)

    def run(self) -> None:
        """Starts everything and returns when both nodes are Ready and DNS answers.

        Raises: ClusterError with the end of the log of the part that failed.
        """
        self._prepare()
        layout = self.layout
        self._start("etcd", control_plane.etcd(layout))
        self._start("kube-apiserver", control_plane.apiserver(layout))
        for node in layout.nodes:
            nodes.start_containerd(self.processes, node, self.binaries)
        archives = images.write_archives(layout.state / "images", self.binaries / "pause")
        for node in layout.nodes:
            nodes.await_containerd(self.processes, node)
            images.import_archives(node, archives)
        self._await("the API server's /readyz", self._api_ready, API_WAIT_S, "kube-apiserver")
        self._start("kube-controller-manager", control_plane.controller_manager(layout))
        self._start("kube-scheduler", control_plane.scheduler(layout))
        for node in layout.nodes:
            nodes.start_kubelet(self.processes, layout, node, self.binaries)
        self._apply_objects()
        self._start("kube-proxy", control_plane.proxy(layout))
        self._start("coredns", control_plane.coredns(layout))
        self._await("both nodes Ready", self._nodes_ready, NODES_WAIT_S, "n1-kubelet")
        self._await("the default ServiceAccount", self._service_account, NODES_WAIT_S, "kube-controller-manager")
        self._await("CoreDNS", self._dns_ready, NODES_WAIT_S, "coredns")
        ready = {"boot_id": boot_id(), "binaries": str(self.binaries)}
        (layout.state / "ready.json").write_text(json.dumps(ready))

    def _prepare(self) -> None:
        layout = self.layout
        plugins = cni_folder()
        if plugins is None:
            raise ClusterError("expected the CNI plugins (package containernetworking-plugins), found none")
        layout.state.mkdir(parents=True, exist_ok=True, mode=0o755)
        for log in layout.logs.glob("*.log"):
            log.unlink()
        cgroups.create(layout.cgroup, [node.cgroup for node in layout.nodes])
        Network(layout).up()
        certificates.issue_all(layout)
        for node in layout.nodes:
            configs.write_node_files(layout, node, plugins)
        resolv = RESOLV_CONF.read_text() if RESOLV_CONF.exists() and layout.netns is None else ""
        (layout.state / "Corefile").write_text(configs.corefile(layout, configs.upstream_servers(resolv)))

    def _start(self, name: str, command: list[str]) -> None:
        self.processes.start(name, command, self.binaries)

    def _apply_objects(self) -> None:
        manifest = json.dumps(objects.initial_objects(self.layout))
        done = self.kubectl("apply", "--validate=false", "-f", "-", stdin=manifest)
        if done.returncode != 0:
            raise ClusterError(f"the initial objects were refused: {done.stderr.strip()}")

    def kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs kubectl as admin in the cluster's network."""
        command = [str(self.binaries / "kubectl"), f"--kubeconfig={self.layout.kubeconfig}", "--request-timeout=5s"]
        return subprocess.run(
            self.processes.in_network([*command, *arguments]),
            capture_output=True,
            text=True,
            input=stdin,
            env=clean_environment(self.binaries),
        )

    def trouble(self, wait_s: float = 0.0) -> str | None:
        """What is wrong with a cluster that runs; None when it is healthy.

        A busy machine answers late, so `wait_s` is given to all but a component that has ended.
        """
        deadline_s = time.monotonic() + wait_s
        while True:
            if dead := self.processes.dead():
                return f"{', '.join(dead)} ended"
            answers = self._api_ready()
            if answers and self._nodes_ready():
                return None
            if time.monotonic() >= deadline_s:
                return "a node is not Ready" if answers else "the API server does not answer"
            time.sleep(0.5)

    def _api_ready(self) -> bool:
        return self.kubectl("get", "--raw", "/readyz").returncode == 0

    def _nodes_ready(self) -> bool:
        path = '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'
        done = self.kubectl("get", "nodes", "-o", f"jsonpath={path}")
        return done.returncode == 0 and sorted(done.stdout.split()) == [f"{n.name}=True" for n in self.layout.nodes]

    def _service_account(self) -> bool:
        return self.kubectl("get", "serviceaccount", "default", "-o", "name").returncode == 0

    def _dns_ready(self) -> bool:
        url = f"http://{self.layout.private_address}:8181/ready"
        script = "import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=2)"
        command = self.processes.in_network([sys.executable, "-c", script, url])
        environment = clean_environment(self.binaries)
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=environment)
        return done.returncode == 0

    def _await(self, what: str, check: Callable[[], bool], wait_s: float, component: str) -> None:
        deadline_s = time.monotonic() + wait_s
        while time.monotonic() < deadline_s:
            if check():
                return
            dead = self.processes.dead()
            if dead:
                raise ClusterError(f"{dead[0]} ended while waiting for {what}:\n{self.processes.log_tail(dead[0])}")
            time.sleep(0.3)
        log = self.processes.log_tail(component)
        raise ClusterError(f"expected {what} within {wait_s:.0f} s, found it not so; end of {component}.log:\n{log}")
