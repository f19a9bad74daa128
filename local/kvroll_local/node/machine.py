"""What this machine offers: CPUs, memory, devices, loopback addresses."""

import errno
import math
import os
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

import psutil

from kvroll_local.node.schedule import NodeRoom

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 1 << 60  # version 1 of cgroups writes a huge number where it means none


def measured(cgroup: Path = _CGROUP, environ: Mapping[str, str] = os.environ) -> NodeRoom:
    """What this process may use: its affinity and its cgroup's limits, and the devices that CUDA_VISIBLE_DEVICES leaves it."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        cpus = max(1, min(cpus, math.ceil(int(quota) / int(period))))
    memory = psutil.virtual_memory().total
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limit = int((cgroup / name).read_text())
            if 0 < limit < _UNLIMITED_BYTES:
                memory = min(memory, limit)
                break
    return NodeRoom(cpus * 1000, memory, devices(environ))


def devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """NVIDIA devices by index, or those that CUDA_VISIBLE_DEVICES names; none where there is no driver."""
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(part.strip() for part in named.split(",") if part.strip() not in ("", "-1"))
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    with suppress(pynvml.NVMLError):
        return tuple(str(index) for index in range(pynvml.nvmlDeviceGetCount()))
    return ()


def listener_problem(host: str, port: int) -> str:
    """Why nobody can listen there now; empty where one can."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return f"{host} is no address of this machine"
            return f"{host}:{port}: {error.strerror}"
    return ""
