"""A node: its folders, its containerd and its kubelet."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from kvroll_cluster.errors import ClusterError
from kvroll_cluster.layout import Layout, Node
from kvroll_cluster.packages import search_path
from kvroll_cluster.processes import Processes


def start_containerd(processes: Processes, node: Node, binaries: Path) -> None:
    command = ["containerd", "--config", str(node.folder / "containerd.toml"), "--log-level", "warn"]
    processes.start(f"{node.name}-containerd", command, binaries)


def await_containerd(processes: Processes, node: Node, wait_s: float = 30.0) -> None:
    """Waits until the CRI plugin of this containerd is loaded.

    Raises: ClusterError with the end of its log when it is not.
    """
    deadline_s = time.monotonic() + wait_s
    command = ["ctr", "-a", str(node.containerd_socket), "--connect-timeout", "2s", "plugins", "ls", "id==cri"]
    while time.monotonic() < deadline_s:
        done = subprocess.run(
            command, capture_output=True, text=True, env={"PATH": search_path()}, stdin=subprocess.DEVNULL
        )
        state = done.stdout.split()[-1:] if done.returncode == 0 else []
        if state == ["ok"]:
            return
        if state == ["error"] or f"{node.name}-containerd" in processes.dead():
            break
        time.sleep(0.2)
    log = processes.log_tail(f"{node.name}-containerd")
    raise ClusterError(
        f"{node.name}: expected containerd's CRI plugin within {wait_s:.0f} s, found it not loaded\n{log}"
    )


def start_kubelet(processes: Processes, layout: Layout, node: Node, binaries: Path) -> None:
    zone = f"topology.kubernetes.io/zone=z{node.name.removeprefix('n')}"
    command = [
        "kubelet",
        f"--config={node.folder}/kubelet.yaml",
        f"--kubeconfig={layout.pki}/{node.name}.kubeconfig",
        f"--hostname-override={node.name}",
        f"--root-dir={node.kubelet_root}",
        f"--cert-dir={node.folder}/pki",
        f"--node-ip={layout.address}",
        f"--node-labels={zone}",
        # cAdvisor of each kubelet walks every cgroup of the machine; the default of 10 s costs two cores a few percent.
        "--housekeeping-interval=30s",
    ]
    processes.start(f"{node.name}-kubelet", command, binaries)
