"""A worker's own metrics are enough for a verdict: every figure that decides is told, under the names that the verdict reads."""

import asyncio
import time

import pytest
from prometheus_client import generate_latest

from kvroll_cli.engines.scrape import read_sample
from kvroll_core.wall import (
    MEMORY_ACTIVE,
    MODEL_INFO,
    TENSOR_ACTIVE,
    Sample,
    Wall,
    classify,
    counters_between,
    engines_in,
)
from kvroll_kernels import dispatch
from kvroll_operator.api.figures import wall_sample
from kvroll_worker.engine.calibration import SLICE_BYTES, Calibration
from kvroll_worker.serve.instance.calibrating import calibrate
from kvroll_worker.serve.instance.host import WorkerHost
from tests.core.test_work import SMOLLM2
from tests.doubles.engine_double import EngineDouble
from tests.wire.conftest import MakeWorker
from tests.wire.stream_gateway import StreamGateway

pytestmark = pytest.mark.slow


def sample_of(host: WorkerHost) -> Sample:
    return read_sample(generate_latest(host.metrics.registry).decode(), time.monotonic())


def small() -> Calibration:
    ops = dispatch.load("native" if dispatch.native_is_built() else "reference")
    return Calibration(ops, SMOLLM2, stream_bytes=SLICE_BYTES)


async def test_a_worker_tells_what_a_verdict_needs(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.02))
    host = worker.host
    measuring = asyncio.create_task(calibrate(host, small(), 1 << 40, quiet_seconds=60))
    while (sample := sample_of(host)).machine().flops_per_second is None:
        await asyncio.sleep(0.02)
    assert (sample.machine().bytes_per_second or 0) > 1e6
    assert not sample.rates().weights, "the dtypes wait for a quiet minute"
    assert sample.info(MODEL_INFO) == {"weights": "bf16", "kv_cache": "bf16"}
    await asyncio.sleep(0.3)
    first = sample_of(host)
    instance = await gateway.attach(worker.host.ref.address)
    gateway.submit(instance, "s", [1, 2, 3], max_tokens=30)
    await asyncio.sleep(1.0)
    [engine] = engines_in([first, sample_of(host)])
    counters = counters_between(engine.views)
    assert (counters.steps or 0) >= 15
    assert 0.3 < (counters.busy_seconds or 0) < counters.seconds
    assert counters.waiting_for_room == 0
    assert counters.kv_used is not None
    # The double reckons no bytes: that alone is missing.
    says = classify(counters, first.machine())
    assert says.wall in (Wall.IDLE, Wall.UNKNOWN)
    assert "busy" not in says.says
    measuring.cancel()
    await asyncio.gather(measuring, return_exceptions=True)


async def test_the_dtypes_are_measured_when_it_is_quiet(make_worker: MakeWorker) -> None:
    worker = await make_worker()
    await asyncio.wait_for(calibrate(worker.host, small(), 1 << 40, quiet_seconds=0.1), 60)
    rates = sample_of(worker.host).rates()
    assert {"bf16", "int8", "int4"} <= set(rates.weights)
    assert {"bf16", "int8", "mxfp8"} <= set(rates.kv)


async def test_too_little_memory_is_left_alone(make_worker: MakeWorker) -> None:
    worker = await make_worker()
    calibration = small()
    await calibrate(worker.host, calibration, 2 * calibration.peak_bytes - 1)
    assert sample_of(worker.host).machine().bytes_per_second is None


async def test_a_report_tells_the_same_figures_as_the_metrics(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.005))
    worker.host.metrics.wall.measured("device", "bytes", 1e10)
    worker.host.metrics.wall.measured("kv", "int8", 4e9)
    worker.host.metrics.wall.active(0.6, 0.1)
    session = gateway.submit(await gateway.attach(worker.address), "s", [1] * 40, max_tokens=20)
    await gateway.until(lambda: session.log.next_index >= 20)
    await asyncio.sleep(0.5)  # the figures are taken a few times a second
    told, page = wall_sample(await worker.report()), sample_of(worker.host)
    assert told is not None
    assert told.series["kvroll_steps_total"][()] >= 20
    for name in told.series.keys() - {"kvroll_kv_pages", MODEL_INFO}:
        assert told.total(name) == pytest.approx(page.total(name)), name
    assert (told.info(MODEL_INFO), told.rates()) == (page.info(MODEL_INFO), page.rates())
    assert told.mean(*MEMORY_ACTIVE) == page.mean(*MEMORY_ACTIVE) == 0.6
    assert told.mean(*TENSOR_ACTIVE) == page.mean(*TENSOR_ACTIVE) == 0.1
