"""The device's own counters through NVML: a fake of its library, as far as the real one is called."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from prometheus_client import CollectorRegistry

from kvroll_worker.serve.device_counters import DeviceCounters, watch
from kvroll_worker.serve.wall_series import WallSeries

# pytest-asyncio asks for the current loop before its own; where none was ever set, asyncio makes one that nobody closes.
asyncio.set_event_loop(None)


class FakeNvml:
    """Devices by index with a counter that grows by `rates` (memory, tensor percent) between samples; the structures are pynvml's."""

    NVMLError = pynvml.NVMLError
    NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION
    NVML_GPM_METRIC_DRAM_BW_UTIL = pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL
    NVML_GPM_METRIC_ANY_TENSOR_UTIL = pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL

    def __init__(self, rates: list[tuple[float, float]], *, gpm: bool = True, driver: bool = True) -> None:
        self.rates, self.gpm, self.driver = rates, gpm, driver
        self.held = 0
        self.lost = False

    def nvmlInit(self) -> None:
        if not self.driver:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.rates)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return int(uuid.removeprefix("GPU-"))

    def nvmlGpmQueryDeviceSupport(self, device: int) -> Any:
        return SimpleNamespace(isSupportedDevice=int(self.gpm))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.held += 1
        return SimpleNamespace()

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.held -= 1

    def nvmlGpmSampleGet(self, device: int, sample: Any) -> Any:
        if self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        sample.device = device
        return sample

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, value=0.0) for _ in range(2)])

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:
        assert (asked.version, asked.numMetrics) == (pynvml.NVML_GPM_METRICS_GET_VERSION, 2)
        assert asked.sample1.device == asked.sample2.device
        memory, tensor = self.rates[asked.sample1.device]
        of = {pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: memory, pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: tensor}
        for metric in asked.metrics:
            metric.value = of[metric.metricId]
        return asked


@pytest.mark.parametrize(
    ("visible", "shares"),
    [(None, (0.5, 0.2)), ("0", (0.8, 0.1)), ("GPU-1", (0.2, 0.3)), (" 1 , 0", (0.5, 0.2))],
)
def test_shares_are_the_mean_of_the_devices_that_the_process_sees(
    visible: str | None, shares: tuple[float, float]
) -> None:
    nvml = FakeNvml([(80, 10), (20, 30)])
    counters = DeviceCounters.find(nvml, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert counters is not None
    for _ in range(5):
        assert counters.read() == pytest.approx(shares)
    assert nvml.held == (1 if visible in ("0", "GPU-1") else 2), "samples are given back"


@pytest.mark.parametrize(
    "nvml",
    [FakeNvml([(80, 10)], driver=False), FakeNvml([(80, 10)], gpm=False), FakeNvml([])],
    ids=["no driver", "no counters", "no device"],
)
def test_without_a_driver_a_device_or_its_counters_walls_stay_modelled(nvml: FakeNvml) -> None:
    assert DeviceCounters.find(nvml, {}) is None


def test_no_device_that_the_process_may_see() -> None:
    assert DeviceCounters.find(FakeNvml([(80, 10)]), {"CUDA_VISIBLE_DEVICES": ""}) is None


def test_the_real_library_finds_what_this_machine_has() -> None:
    found = DeviceCounters.find(environment={})
    assert found is None or all(0 <= share <= 1 for share in found.read())


async def test_a_worker_shows_them_until_the_device_is_lost() -> None:
    series, registry = WallSeries("m"), CollectorRegistry()
    registry.register(series)
    nvml = FakeNvml([(64, 5)])
    counters = DeviceCounters.find(nvml, {})
    assert counters is not None
    watching = asyncio.ensure_future(watch(counters, series, every_seconds=0.01))
    while registry.get_sample_value("kvroll_device_memory_active") is None:
        await asyncio.sleep(0.01)
    assert registry.get_sample_value("kvroll_device_memory_active") == 0.64
    assert registry.get_sample_value("kvroll_device_tensor_active") == 0.05
    nvml.lost = True
    await asyncio.wait_for(watching, 5)
    assert registry.get_sample_value("kvroll_device_memory_active") is None
