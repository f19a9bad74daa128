"""What the machine (or the container) gives this process: CPUs, memory, and the mathematics below the engine."""

import math
import os
import platform
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from numpy.lib.introspect import opt_func_info

_CGROUP = Path("/sys/fs/cgroup")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNLIMITED_BYTES = 1 << 60  # cgroup v1 writes a huge number where it means "no limit"
# What the sampler and the tables of rope call of numpy, and the sums and products around them.
_NUMPY_FUNCTIONS = r"^(exp|log|cos|sin|add|subtract|multiply|divide)$"


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


def math_runtime() -> str:
    """What rounds beside the kernels: numpy, the loops that it chose for this CPU, and the libm below them.

    The kernels call no libm: their exponential is a polynomial of their own, and square roots are the hardware's, which are exact. The
    tables of rope and the sampler's logarithms are numpy's, which has loops for some instruction sets and asks libm elsewhere.
    """
    found = opt_func_info(func_name=_NUMPY_FUNCTIONS)
    floats = (kinds for loops in found.values() for types, kinds in loops.items() if set(types) <= {"f", "d"})
    chosen = {kinds["current"].partition("(")[0] for kinds in floats}
    return f"numpy {np.__version__} {'+'.join(sorted(chosen))}, {' '.join(platform.libc_ver()) or 'libc unknown'}"
