"""The device's own counters of memory and tensor activity, where NVML has them: what confirms a modelled bandwidth wall.

Only its GPM metrics (Hopper and later) count bytes. `utilization.memory`, which older devices have, is the share of time in which
anything touched memory at all: high at any load, so it would confirm everything and is not read.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from kvroll_worker.serve.wall_series import WallSeries

_log = structlog.get_logger("kvroll.worker.device_counters")
EVERY_SECONDS = 5.0


class DeviceCounters:
    """Mean shares over the process's devices, between two readings."""

    def __init__(self, nvml: Any, devices: Sequence[Any]) -> None:
        self._nvml, self._devices = nvml, devices
        self._samples = [self._sample(device) for device in devices]

    @classmethod
    def find(cls, nvml: Any = None, environment: Mapping[str, str] = os.environ) -> "DeviceCounters | None":
        """The counters of the devices that this process sees; None where there is no driver, no device, or one without GPM."""
        if nvml is None:
            import pynvml  # not at the top: a worker on a CPU needs none of it

            nvml = pynvml
        try:
            nvml.nvmlInit()
            devices = _visible(nvml, environment.get("CUDA_VISIBLE_DEVICES"))
            if devices and all(nvml.nvmlGpmQueryDeviceSupport(d).isSupportedDevice for d in devices):
                return cls(nvml, devices)
        except nvml.NVMLError as error:
            _log.info("no device counters: walls stay modelled", found=str(error))
            return None
        _log.info("no device counters: walls stay modelled", found=f"{len(devices)} devices, not all with GPM metrics")
        return None

    def read(self) -> tuple[float, float]:
        """(memory, tensor): shares from 0 to 1 since the last reading.

        Raises:
            NVMLError: the device or the driver went away.
        """
        shares = []
        for index, device in enumerate(self._devices):
            sample = self._sample(device)
            shares.append(self._shares(self._samples[index], sample))
            self._nvml.nvmlGpmSampleFree(self._samples[index])
            self._samples[index] = sample
        count = len(shares)
        return sum(memory for memory, _ in shares) / count, sum(tensor for _, tensor in shares) / count

    def _sample(self, device: Any) -> Any:
        return self._nvml.nvmlGpmSampleGet(device, self._nvml.nvmlGpmSampleAlloc())

    def _shares(self, before: Any, after: Any) -> tuple[float, float]:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
        asked.sample1, asked.sample2 = before, after
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
        asked.metrics[1].metricId = nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL
        nvml.nvmlGpmMetricsGet(asked)
        memory, tensor = (min(1.0, max(0.0, asked.metrics[i].value / 100)) for i in (0, 1))
        return memory, tensor


async def watch(counters: DeviceCounters, series: WallSeries, *, every_seconds: float = EVERY_SECONDS) -> None:
    """Shows the counters in the metrics for ever; ends with a word in the log when they can no longer be read."""
    while True:
        await asyncio.sleep(every_seconds)
        try:
            memory, tensor = await asyncio.to_thread(counters.read)
        except Exception as error:  # NVML's own class is not there without the library
            _log.warning("device counters cannot be read any more: walls are modelled", error=str(error))
            series.inactive()
            return
        series.active(memory, tensor)


def _visible(nvml: Any, told: str | None) -> list[Any]:
    """Handles of the devices that CUDA shows to this process: all, or those that CUDA_VISIBLE_DEVICES names by number or UUID."""
    if told is None:
        return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    names = [name.strip() for name in told.split(",") if name.strip()]
    return [
        nvml.nvmlDeviceGetHandleByIndex(int(n)) if n.isdigit() else nvml.nvmlDeviceGetHandleByUUID(n) for n in names
    ]
