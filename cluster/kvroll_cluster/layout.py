"""Where everything of one cluster lies: folders, addresses, names. All of it follows from one index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvroll_cluster.errors import ClusterError

NODE_NUMBERS = (1, 2)
MAX_INDEX = 9


@dataclass(frozen=True)
class Node:
    """One kubelet with a containerd of its own."""

    name: str
    folder: Path
    bridge: str
    pod_subnet: str
    cgroup: str
    kubelet_port: int
    kubelet_health_port: int

    @property
    def containerd_socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def kubelet_root(self) -> Path:
        return self.folder / "kubelet"


@dataclass(frozen=True)
class Layout:
    """The names and addresses of the cluster with this index.

    Index 0, the default, lives in the host's own network, so that the host reaches Pods and Services. Every other
    index lives in a network namespace of its own, because kube-proxy's nftables tables have fixed names.
    """

    index: int
    state: Path
    cache: Path

    @property
    def address(self) -> str:
        """The address on `lo` that serves as API address and as InternalIP of both nodes; Pods reach it."""
        return f"10.90.{self.index}.1"

    @property
    def private_address(self) -> str:
        """A loopback address for what Pods must not reach (etcd, health ports): fixed ports never collide."""
        return f"127.90.{self.index}.1"

    @property
    def service_subnet(self) -> str:
        return f"10.96.{self.index}.0/24"

    @property
    def kubernetes_service(self) -> str:
        return f"10.96.{self.index}.1"

    @property
    def dns_service(self) -> str:
        return f"10.96.{self.index}.10"

    @property
    def pod_supernet(self) -> str:
        return "10.88.0.0/16"

    @property
    def cgroup(self) -> str:
        """The cgroup, in every hierarchy, below which all of the cluster's processes live."""
        return f"kvroll-{self.index}"

    @property
    def netns(self) -> str | None:
        return None if self.index == 0 else f"kvroll-{self.index}"

    @property
    def api_url(self) -> str:
        return f"https://{self.address}:6443"

    @property
    def etcd_url(self) -> str:
        return f"http://{self.private_address}:2379"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "admin.kubeconfig"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def records(self) -> Path:
        return self.state / "processes"

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._node(number) for number in NODE_NUMBERS)

    def _node(self, number: int) -> Node:
        name = f"n{number}"
        return Node(
            name=name,
            folder=self.state / name,
            bridge=f"kvr{self.index}n{number}",
            pod_subnet=f"10.88.{self.index * 10 + number}.0/24",
            cgroup=f"{self.cgroup}/{name}",
            kubelet_port=10250 + 10 * number,
            kubelet_health_port=10248 + 10 * number,
        )


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The folder of what is built once: KVROLL_CACHE, else kvroll's part of the user's cache."""
    if environ.get("KVROLL_CACHE"):
        return Path(environ["KVROLL_CACHE"]).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "kvroll"


def layout_from(environ: Mapping[str, str]) -> Layout:
    """Reads KVROLL_CLUSTER_INDEX, KVROLL_CLUSTER_DIR and the cache variables.

    The state folder defaults to /var/lib: /run is mounted noexec on many systems and socket paths must stay short.

    Raises: ClusterError when the index is not 0 to 9.
    """
    text = environ.get("KVROLL_CLUSTER_INDEX") or "0"
    if not text.isdecimal() or int(text) > MAX_INDEX:
        raise ClusterError(f"KVROLL_CLUSTER_INDEX: expected 0 to {MAX_INDEX}, found {text!r}")
    index = int(text)
    default = "/var/lib/kvroll-cluster" + (f"-{index}" if index else "")
    state = Path(environ.get("KVROLL_CLUSTER_DIR") or default).expanduser().absolute()
    return Layout(index=index, state=state, cache=cache_folder(environ))


def checkout_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The kvroll checkout that this package is part of.

    Raises: ClusterError when the Go module is not found beside the package.
    """
    folder = Path(environ.get("KVROLL_CHECKOUT") or Path(__file__).resolve().parents[2]).absolute()
    if not (folder / "cluster" / "go.mod").is_file():
        raise ClusterError(
            f"expected a kvroll checkout at {folder}, found no cluster/go.mod there; set KVROLL_CHECKOUT to the checkout"
        )
    return folder
