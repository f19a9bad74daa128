"""The Debian packages that the nodes need."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from kvroll_cluster.errors import ClusterError

# What must be there -> the package that brings it. kube-proxy runs `nft`; CNI plugins have no place on PATH.
NEEDED = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "umount": "mount",
    "nsenter": "util-linux",
}
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "loopback")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def search_path() -> str:
    """PATH with the system folders: a plain user's PATH often lacks sbin."""
    return f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"


def cni_folder() -> Path | None:
    """The folder that holds the CNI plugins, if any does."""
    return next((f for f in CNI_FOLDERS if all((f / plugin).exists() for plugin in CNI_PLUGINS)), None)


def missing_packages() -> list[str]:
    """The Debian packages whose programs are absent, sorted."""
    missing = {package for program, package in NEEDED.items() if shutil.which(program, path=search_path()) is None}
    if cni_folder() is None:
        missing.add("containernetworking-plugins")
    return sorted(missing)


def ensure_packages() -> None:
    """Installs what is missing as root; otherwise says the exact command.

    Raises: ClusterError when not root, without apt-get, or when the installation fails.
    """
    missing = missing_packages()
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        first = f"sudo {' '.join(command)} && " if missing else ""
        raise ClusterError(
            "the local Kubernetes runs kubelets and containers and needs root; found another user. Run:\n  "
            f'{first}sudo -E env "PATH=$PATH" make cluster-up\nor set KUBECONFIG or KVROLL_CLUSTER=kind'
        )
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"expected the programs of {', '.join(missing)}, found no apt-get to install them with")
    print(f"installing {' '.join(missing)}", flush=True)
    if _apt(command).returncode != 0:
        _apt(["apt-get", "update"])
        done = _apt(command)
        if done.returncode != 0:
            raise ClusterError(f"`{' '.join(command)}` failed:\n{done.stdout[-2000:]}")
    if missing_packages():
        raise ClusterError(f"still missing after the installation: {' '.join(missing_packages())}")


def _apt(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
