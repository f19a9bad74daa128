"""Starts components that outlive the launcher, and ends exactly those processes again.

A process is named by pid, start time and boot, so a recycled pid is never taken for it; signals go through a pidfd,
so no pid can be recycled between the check and the signal.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kvroll_cluster import cgroups
from kvroll_cluster.errors import ClusterError
from kvroll_cluster.layout import Layout
from kvroll_cluster.packages import search_path

PROC = Path("/proc")


@dataclass(frozen=True)
class Identity:
    """One process: `start_ticks` is field 22 of /proc/<pid>/stat, in clock ticks since `boot_id`'s boot."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The identity of a live process; None for a pid that is free or a zombie."""
        ticks = start_ticks(pid)
        return None if ticks is None else cls(pid, ticks, boot_id())

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self == Identity.of(self.pid)


def boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat; None when there is no such process or it has ended and waits for its parent."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return parse_start_ticks(text)


def parse_start_ticks(stat: str) -> int | None:
    """Reads a stat line; the command in parentheses may itself hold spaces and parentheses."""
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def clean_environment(binaries: Path) -> dict[str, str]:
    """What components get: no proxy, which would swallow requests to the node address, and no KUBECONFIG."""
    return {"PATH": f"{binaries}:{search_path()}", "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}


class Processes:
    """The components of one cluster and the folder that records them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def in_network(self, command: Sequence[str]) -> list[str]:
        """The command, to be run in the cluster's network namespace (index 0: as it is)."""
        if self.layout.netns is None:
            return list(command)
        return ["nsenter", f"--net=/run/netns/{self.layout.netns}", *command]

    def start(self, name: str, command: Sequence[str], binaries: Path) -> Identity:
        """Starts a component in its own session and in the cluster's cgroup, and records it."""
        procs = cgroups.tracking_folder(self.layout.cgroup) / "system" / "cgroup.procs"
        # The shell joins the cgroup before it becomes the component: no child can escape, no window after a crash.
        script = f'echo $$ > "{procs}" && exec "$@"'
        self.layout.logs.mkdir(parents=True, exist_ok=True)
        with (self.layout.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", script, "sh", *self.in_network(command)],
                cwd=self.layout.state,
                env=clean_environment(binaries),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        identity = Identity.of(process.pid)
        if identity is None:
            raise ClusterError(f"{name} ended at once: {self.log_tail(name)}")
        process.returncode = 0  # It outlives us on purpose: no ResourceWarning, no wait.
        self.layout.records.mkdir(parents=True, exist_ok=True)
        (self.layout.records / f"{name}.json").write_text(json.dumps(asdict(identity)))
        return identity

    def records(self) -> dict[str, Identity]:
        """What was started, by name; a torn record of a crash is left out (its process is in the cgroup)."""
        found = {}
        for path in sorted(self.layout.records.glob("*.json")):
            try:
                found[path.stem] = Identity(**json.loads(path.read_text()))
            except (ValueError, TypeError):
                continue
        return found

    def dead(self) -> list[str]:
        """The names of recorded components that no longer run."""
        return [name for name, identity in self.records().items() if not identity.alive()]

    def log_tail(self, name: str, lines: int = 15) -> str:
        path = self.layout.logs / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "(no log)"


def kill(identities: Iterable[Identity], number: signal.Signals, wait_s: float) -> list[Identity]:
    """Signals these processes and waits; returns those that are still there."""
    handles: dict[int, Identity] = {}
    try:
        for identity in identities:
            handle = _open(identity)
            if handle is not None:
                handles[handle] = identity
                signal.pidfd_send_signal(handle, number)
        _await_end(handles, wait_s)
        return [identity for identity in handles.values() if identity.alive()]
    finally:
        for handle in handles:
            os.close(handle)


def _open(identity: Identity) -> int | None:
    try:
        handle = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    if identity.alive():
        return handle
    os.close(handle)
    return None


def _await_end(handles: Iterable[int], wait_s: float) -> None:
    poller = select.poll()
    waiting = set(handles)
    for handle in waiting:
        poller.register(handle, select.POLLIN)
    deadline_s = time.monotonic() + wait_s
    while waiting and (left_s := deadline_s - time.monotonic()) > 0:
        for handle, _ in poller.poll(left_s * 1000):
            poller.unregister(handle)
            waiting.discard(handle)
