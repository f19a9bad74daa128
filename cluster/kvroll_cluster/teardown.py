"""Removes a cluster, also one whose launcher or components were killed, from names alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from kvroll_cluster import cgroups
from kvroll_cluster.errors import ClusterError
from kvroll_cluster.layout import Layout
from kvroll_cluster.network import Network
from kvroll_cluster.processes import Identity, Processes, kill

# containerd's shims keep their sockets here, whatever containerd's own state folder is.
SHIM_SOCKETS = Path("/run/containerd/s")
CONTAINER_LOG_LINKS = Path("/var/log/containers")
SWEEPS = 50


def tear_down(layout: Layout, *, keep_logs: bool = True) -> list[str]:
    """Ends every process, unmounts, and removes network, cgroups and state. Returns what is left, in words.

    Safe to repeat, and safe when nothing is there.
    """
    end_processes(layout)
    sockets = shim_sockets(layout.state)
    unmount(layout.state)
    Network(layout).down()
    cgroups.remove(layout.cgroup)
    for socket in sockets:
        socket.unlink(missing_ok=True)
    _remove_log_links(layout.state)
    left = leftovers(layout)
    if not left:
        _remove_state(layout, keep_logs=keep_logs)
    return left


def end_processes(layout: Layout) -> None:
    """Kills all that is in the cluster's cgroups, and recorded components that are not, until none is left.

    At once and without a goodbye: the data goes too, and a component that ends slowly would start others again.
    """
    for _ in range(SWEEPS):
        processes = running(layout)
        if not processes:
            return
        kill(processes, signal.SIGKILL, wait_s=2.0)
        time.sleep(0.02)


def running(layout: Layout) -> list[Identity]:
    """The cluster's live processes: by cgroup, containers and shims included, and by record."""
    found = {identity for pid in cgroups.process_ids(layout.cgroup) if (identity := Identity.of(pid)) is not None}
    found.update(identity for identity in Processes(layout).records().values() if identity.alive())
    return sorted(found, key=lambda identity: identity.pid)


def mounts_below(folder: Path, mountinfo: str | None = None) -> list[Path]:
    """The mount points at or below a folder, deepest and latest first."""
    text = mountinfo if mountinfo is not None else Path("/proc/self/mountinfo").read_text()
    points = [Path(_unescape(line.split()[4])) for line in text.splitlines()]
    return [point for point in reversed(points) if point == folder or folder in point.parents]


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def unmount(folder: Path) -> None:
    """Detaches every mount below a folder; several may lie on one point."""
    for _ in range(SWEEPS):
        points = mounts_below(folder)
        if not points:
            return
        for point in points:
            subprocess.run(["umount", "-l", str(point)], capture_output=True, stdin=subprocess.DEVNULL)


def shim_sockets(state: Path) -> list[Path]:
    """The socket paths that the shims of this cluster wrote beside their bundles."""
    addresses = state.glob("*/containerd-state/io.containerd.runtime.v2.task/*/*/address")
    found = []
    for path in addresses:
        with suppress(OSError):
            found.append(Path(path.read_text().strip().removeprefix("unix://")))
    return [path for path in found if path.parent == SHIM_SOCKETS]


def _remove_log_links(state: Path) -> None:
    if not CONTAINER_LOG_LINKS.is_dir():
        return
    for link in CONTAINER_LOG_LINKS.iterdir():
        if link.is_symlink() and state in Path(os.readlink(link)).parents:
            link.unlink(missing_ok=True)


def _remove_state(layout: Layout, *, keep_logs: bool) -> None:
    if not layout.state.is_dir():
        return
    for path in layout.state.iterdir():
        if keep_logs and path == layout.logs:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not keep_logs:
        layout.state.rmdir()


def leftovers(layout: Layout) -> list[str]:
    """What of the cluster is still there: processes, mounts, cgroups, network."""
    found = [f"process {identity.pid}" for identity in running(layout)]
    found += [f"mount {point}" for point in mounts_below(layout.state)]
    found += [f"cgroup {folder}" for folder in cgroups.remaining(layout.cgroup)]
    return found + Network(layout).leftovers()


def check_state_folder(layout: Layout) -> None:
    """Refuses a state folder that something else lives in: tear_down removes its content.

    Raises: ClusterError.
    """
    known = {"logs", "pki", "etcd", "processes", "images", "n1", "n2", "Corefile", "sysctls.json"}
    known |= {layout.kubeconfig.name, "ready.json", "kind.kubeconfig"}
    strangers = {path.name for path in layout.state.iterdir()} - known if layout.state.is_dir() else set()
    if strangers:
        raise ClusterError(
            f"{layout.state} holds {', '.join(sorted(strangers))}, which is not the cluster's; "
            "set KVROLL_CLUSTER_DIR to a folder of its own"
        )
