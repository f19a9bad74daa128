"""`kvroll wall --prometheus`: the counters of NVIDIA's DCGM exporter decide, where there are any."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import Result

from kvroll_cli.engines.scrape import read_sample
from kvroll_core.wall import counters_between, engines_in
from tests.cli.conftest import Recorded
from tests.cli.engine_pages import answered, served, vllm_page
from tests.cli.test_wall import DEVICE, FAST, workers_of

Kvroll = Callable[..., Result]
# As dcgm-exporter 4 shows a node with two H100s, one of them a worker's.
EXPORTER = """\
# HELP DCGM_FI_PROF_DRAM_ACTIVE Ratio of cycles the device memory interface is active sending or receiving data.
# TYPE DCGM_FI_PROF_DRAM_ACTIVE gauge
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1c0",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",DCGM_FI_DRIVER_VERSION="570.124.06",container="engine",namespace="demo",pod="demo-a-0"} 0.714302
DCGM_FI_PROF_DRAM_ACTIVE{gpu="1",UUID="GPU-2d1",pci_bus_id="00000000:2A:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",DCGM_FI_DRIVER_VERSION="570.124.06",container="engine",namespace="demo",pod="demo-b-0"} 0.102210
# HELP DCGM_FI_PROF_PIPE_TENSOR_ACTIVE Ratio of cycles the tensor (HMMA) pipe is active.
# TYPE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1c0",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",DCGM_FI_DRIVER_VERSION="570.124.06",container="engine",namespace="demo",pod="demo-a-0"} 0.081122
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="1",UUID="GPU-2d1",pci_bus_id="00000000:2A:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",DCGM_FI_DRIVER_VERSION="570.124.06",container="engine",namespace="demo",pod="demo-b-0"} 0.651000
"""  # noqa: E501
BUSY = partial(vllm_page, read_bytes=1e9, flops=1e9)
"""By what it says it read it waits for nothing."""


def answer(path: str, *, exported: bool) -> str:
    """The Prometheus that scraped the page: an instant query over the mean of a series, with a selector of one label."""
    [query] = parse_qs(urlsplit(path).query)["query"]
    name, rest = query.removeprefix("avg_over_time(").split("{", 1)
    selector, span = rest.split("}", 1)
    assert span == "[60s])"
    rows = []
    for labels, value in read_sample(EXPORTER, 0.0).series.get(name, {}).items():
        shown = {f"exported_{k}" if exported and k in ("pod", "namespace") else k: v for k, v in labels}
        key, _, wanted = selector.partition("=")
        if not key or shown.get(key) == wanted.strip('"'):
            rows.append({"metric": shown, "value": [1764460800.0, str(value)]})
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})


@contextmanager
def prometheus(*, exported: bool = False) -> Iterator[str]:
    with answered(lambda path: answer(path, exported=exported)) as url:
        yield url


def value(found: dict[str, Any], name: str) -> Any:
    return next(f["value"] for f in found["evidence"] if f["name"] == name)


@pytest.mark.parametrize(("gpu", "wall"), [("0", "Bandwidth"), ("1", "Compute")])
def test_the_counters_of_a_device_overrule_the_model(kvroll: Kvroll, gpu: str, wall: str) -> None:
    with served(BUSY) as url, prometheus() as asked:
        devices = ("--prometheus", asked, "--gpus", f'gpu="{gpu}"')
        done = kvroll("wall", "--metrics-url", url, *FAST, *DEVICE, *devices, "-o", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["wall"], found["basis"]) == (wall, "Counter")
    assert value(found, "bandwidth_used") == pytest.approx({"0": 0.714302, "1": 0.102210}[gpu])
    assert value(found, "compute_used") == pytest.approx({"0": 0.081122, "1": 0.651}[gpu])


@pytest.mark.parametrize("exported", [False, True])
def test_each_worker_of_a_pool_has_the_counters_of_its_own_pod(api: Recorded, kvroll: Kvroll, exported: bool) -> None:
    pages = {name: BUSY(1) for name in ("demo-a-0", "demo-b-0", "demo-c-0")}
    workers_of(api, pages)
    with prometheus(exported=exported) as asked:
        done = kvroll("wall", "demo", *FAST, *DEVICE, "--prometheus", asked, "-o", "json")
    assert done.exit_code == 0, done.output
    workers = json.loads(done.stdout)["workers"]
    found = {name: (w["basis"], w["wall"]) for name, w in workers.items()}
    assert found["demo-a-0"] == ("Counter", "Bandwidth")
    assert found["demo-b-0"] == ("Counter", "Compute")
    assert found["demo-c-0"][0] == "Modelled"


def test_an_engine_whose_page_has_the_counters_needs_no_prometheus() -> None:
    samples = [read_sample(BUSY(n) + EXPORTER, float(n)) for n in (1, 2)]
    [engine] = engines_in(samples)
    counters = counters_between(engine.views)
    assert counters.memory_active == pytest.approx((0.714302 + 0.102210) / 2)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--gpus", 'gpu="7"'), 1, 'expected DCGM_FI_PROF_DRAM_ACTIVE{gpu="7"} at '),
        (
            ("--metrics-url", "http://127.0.0.1:9"),
            2,
            "expected --gpus once for each engine with --prometheus, found 0 for 2",
        ),
    ],
)
def test_what_cannot_be_matched_is_said(
    kvroll: Kvroll, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    with served(BUSY) as url, served(BUSY) as other, prometheus() as asked:
        arguments = tuple(other if a == "http://127.0.0.1:9" else a for a in arguments)
        assert kvroll("wall", "--metrics-url", url, *FAST, "--prometheus", asked, *arguments).exit_code == code
    assert said in capfd.readouterr().err


def test_a_prometheus_that_is_none_is_said(kvroll: Kvroll, capfd: pytest.CaptureFixture[str]) -> None:
    with served(BUSY) as url, answered(lambda _: "<html>") as asked:
        assert kvroll("wall", "--metrics-url", url, *FAST, "--prometheus", asked).exit_code == 1
    assert "expected a Prometheus at" in capfd.readouterr().err
    with served(BUSY) as url, answered(lambda _: '{"status":"error","error":"bad selector"}') as asked:
        assert kvroll("wall", "--metrics-url", url, *FAST, "--prometheus", asked).exit_code == 1
    assert "it said: bad selector" in capfd.readouterr().err
