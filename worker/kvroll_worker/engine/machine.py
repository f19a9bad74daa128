"""What the machine (or the container) gives this process: CPUs, memory, the CPU's name."""

import math
import os
from contextlib import suppress
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNLIMITED_BYTES = 1 << 60  # cgroup v1 writes a huge number where it means "no limit"
# Kernels choose their path by these; another set may round otherwise.
_ISA_FLAGS = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "amx_bf16",
    "asimd",
    "sve",
)


def cpu_count(cgroup: Path = _CGROUP) -> int:
    """CPUs that this process may use: its affinity, less if the cgroup's quota is less."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, min(count, math.ceil(int(quota) / int(period))))
    with suppress(OSError, ValueError):
        v1_quota = int((cgroup / "cpu/cpu.cfs_quota_us").read_text())
        v1_period = int((cgroup / "cpu/cpu.cfs_period_us").read_text())
        if v1_quota > 0:
            return max(1, min(count, math.ceil(v1_quota / v1_period)))
    return count


def memory_limit_bytes(cgroup: Path = _CGROUP) -> int:
    """The cgroup's memory limit (v2, then v1), at most the machine's memory."""
    total: int = psutil.virtual_memory().total
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limit = int((cgroup / name).read_text())  # "max" is no number: no limit
            if 0 < limit < _UNLIMITED_BYTES:
                return min(limit, total)
    return total


def cache_bytes(caches: Path = _CACHES) -> int:
    """Bytes of the largest cache of a CPU; 32 MiB where the kernel does not say."""
    sizes = []
    with suppress(OSError, ValueError):
        for path in caches.glob("index*/size"):
            text = path.read_text().strip()
            sizes.append(int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1], 0))
    return max(sizes, default=32 << 20)


def cpu_name() -> str:
    """The processor's model name, empty where the kernel does not say."""
    return _cpuinfo().get("model name", "")


def cpu_isa() -> str:
    """The instruction sets that kernels may use here, space-separated."""
    info = _cpuinfo()
    flags = set((info.get("flags") or info.get("Features") or "").split())
    return " ".join(flag for flag in _ISA_FLAGS if flag in flags)


def _cpuinfo() -> dict[str, str]:
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    return found
