"""`kvroll wall` on the metrics pages of engines: vLLM's as it is, and a worker's of ours with what it measured at start."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from tests.cli.conftest import Recorded
from tests.cli.engine_pages import Page, answered, served, vllm_page
from tests.cli.recorded import pool

Kvroll = Callable[..., Result]
FAST = ("--interval", "0.2", "--every", "0.05")
DEVICE = ("--device-bandwidth", "3TB", "--device-flops", "600T")
LLAMA_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
WORKER = """
# TYPE kvroll_step_seconds counter
kvroll_step_seconds_total {busy}
# TYPE kvroll_steps counter
kvroll_steps_total {steps}
# TYPE kvroll_waiting_for_room_seconds counter
kvroll_waiting_for_room_seconds_total 0.0
# TYPE kvroll_device_bytes_per_second gauge
kvroll_device_bytes_per_second 1.2e+10
# TYPE kvroll_device_flops_per_second gauge
kvroll_device_flops_per_second 6e+10
# TYPE kvroll_engine_info gauge
kvroll_engine_info{{kv_cache="bf16",weights="bf16"}} 1.0
# TYPE kvroll_format_bytes_per_second gauge
kvroll_format_bytes_per_second{{dtype="bf16",kind="kv"}} 6e+09
kvroll_format_bytes_per_second{{dtype="int8",kind="kv"}} 4e+09
kvroll_format_bytes_per_second{{dtype="bf16",kind="weights"}} 1e+10
kvroll_format_bytes_per_second{{dtype="int8",kind="weights"}} 9e+09
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return tmp_path


def judged(kvroll: Kvroll, page: Page, *arguments: str) -> dict[str, Any]:
    with served(page) as url:
        done = kvroll("wall", "--metrics-url", url, *FAST, *arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def value(found: dict[str, Any], name: str) -> float | None:
    figure: dict[str, Any] = next(f for f in found["evidence"] if f["name"] == name)
    number: float | None = figure["value"]
    return number


def test_a_vllm_with_full_pages_and_a_queue_is_at_the_capacity_wall(kvroll: Kvroll, model: Path) -> None:
    page = partial(vllm_page, waiting=12, kv_used=0.98, read_bytes=1e9, flops=1e9)
    found = judged(kvroll, page, *DEVICE, "--model", str(model))
    assert (found["wall"], found["basis"]) == ("Capacity", "Modelled")
    assert value(found, "waiting_for_room") == 1
    assert value(found, "kv_used") == 0.98
    advice = found["advice"][0]
    assert (advice["lever"], advice["to"], advice["flag"]) == ("kvCache", "fp8", "--kv-cache-dtype fp8")
    assert advice["sessions_ratio"] == pytest.approx(2)
    # A vLLM measures no kernel at its start: no speed is claimed.
    assert advice["step_ratio"] is None


@pytest.mark.parametrize(
    ("running", "kv_used", "wall"),
    [
        (2, 0.8, "Capacity"),  # each holds 40 % of the pages: 20 % are too few for one more
        (2, 0.5, "Host"),
        (256, 0.205, "Host"),  # vLLM calls those that wait for a slot "capacity" too: 256 run, and pages are free
    ],
)
def test_a_queue_is_a_capacity_wall_where_pages_are_too_few_for_one_more(
    kvroll: Kvroll, running: float, kv_used: float, wall: str
) -> None:
    page = partial(vllm_page, running=running, waiting=9, kv_used=kv_used, read_bytes=1e9, flops=1e9)
    told = "kvroll_step_seconds_total {}\n"
    found = judged(kvroll, lambda look: page(look) + told.format(0.05 * look), *DEVICE)
    assert found["wall"] == wall


def test_a_vllm_that_reads_all_the_time_is_at_the_bandwidth_wall(kvroll: Kvroll) -> None:
    found = judged(kvroll, partial(vllm_page, read_bytes=3e12, flops=1e9), *DEVICE)
    assert found["wall"] == "Bandwidth"
    assert value(found, "intensity_flops_per_byte") == pytest.approx(1 / 3000)
    assert value(found, "prefix_hit_rate") == 0.25
    # 95 of 100 between the edges 0.02 (90) and 0.04 (100).
    assert value(found, "inter_token_p95_seconds") == pytest.approx(0.03)


def test_a_vllm_without_its_byte_counters_is_unknown_until_the_model_is_told(kvroll: Kvroll, model: Path) -> None:
    with served(vllm_page) as url:
        done = kvroll("wall", "--metrics-url", url, *FAST, *DEVICE, "--exit-code")
    assert done.exit_code == 3
    assert "Unknown (Modelled): what would decide it is not told: bandwidth_used" in done.stdout
    found = judged(kvroll, vllm_page, *DEVICE, "--model", str(model))
    # 100 tokens a session and look, each step 15.5 GB of weights and 23 GB of KV; a look takes 50 ms.
    assert found["wall"] == "Bandwidth"
    assert value(found, "bandwidth_used") > 1  # type: ignore[operator]


def worker_page(look: int) -> str:
    page = vllm_page(look, kv_used=0.05, read_bytes=5e8, flops=1e7)
    return page + WORKER.format(busy=0.05 * look, steps=2.0 * look)


def test_a_worker_tells_its_device_its_precision_and_its_rates(kvroll: Kvroll, model: Path) -> None:
    found = judged(kvroll, worker_page, "--model", str(model))
    assert found["wall"] == "Bandwidth"
    # 5e8 bytes in 0.05 busy seconds of a device that reads 1.2e10 a second; over the busy time, not the window.
    assert value(found, "bandwidth_used") == pytest.approx(5e8 / 0.05 / 1.2e10)
    assert value(found, "compute_used") == pytest.approx(1e7 / 0.05 / 6e10)
    first = found["advice"][0]
    assert (first["lever"], first["to"]) == ("weights", "int8")
    assert 0.5 < first["step_ratio"] < 0.97


def test_a_pool_is_judged_whole_and_by_worker(kvroll: Kvroll) -> None:
    full = partial(vllm_page, waiting=12, kv_used=0.98, read_bytes=1e9, flops=1e9)
    free = partial(vllm_page, waiting=0, kv_used=0.1, read_bytes=1e9, flops=1e9)
    with served(full) as one, served(full) as two, served(free) as three:
        urls = [part for url in (one, two, three) for part in ("--metrics-url", url)]
        done = kvroll("wall", *urls, *FAST, *DEVICE, "-o", "yaml")
    found = yaml.safe_load(done.stdout)
    walls = [found["workers"][url]["wall"] for url in (one, two, three)]
    assert walls[:2] == ["Capacity", "Capacity"]
    assert walls[2] != "Capacity"
    assert value(found, "kv_used") == pytest.approx((2 * 0.98 + 0.1) / 3)


def test_the_table_shows_each_figure_beside_its_threshold(kvroll: Kvroll, model: Path) -> None:
    page = partial(vllm_page, waiting=12, kv_used=0.98, read_bytes=1e9, flops=1e9)
    with served(page) as url:
        done = kvroll("wall", "--metrics-url", f"{url}/metrics", *FAST, *DEVICE, "--model", str(model))
    rows = {line.split()[0]: line.split()[1:3] for line in done.stdout.splitlines() if line.strip()}
    assert rows["kv_used"] == ["0.98", "0.9"]
    assert rows["waiting_for_room"] == ["1", "0.2"]
    assert "moves the capacity ceiling" in done.stdout


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (lambda look: "# nothing\n", "expected vllm:num_requests_running (vLLM), sglang:num_running_reqs (SGLang), "),
        (lambda look: "<html>\n", "expected Prometheus' text format at "),
        (lambda look: vllm_page(10 - look), "went back from"),
    ],
)
def test_what_is_no_engine_is_refused(
    kvroll: Kvroll, capfd: pytest.CaptureFixture[str], page: Page, message: str
) -> None:
    with served(page) as url:
        assert kvroll("wall", "--metrics-url", url, *FAST).exit_code == 1
    assert message in capfd.readouterr().err


def test_nobody_there_is_one_line(kvroll: Kvroll, capfd: pytest.CaptureFixture[str]) -> None:
    assert kvroll("wall", "--metrics-url", "http://127.0.0.1:9", *FAST).exit_code == 1
    said = capfd.readouterr().err
    assert said.startswith("kvroll: expected Prometheus metrics at http://127.0.0.1:9/metrics, found: ")
    assert said.count("\n") == 1


def workers_of(api: Recorded, pages: dict[str, str], *, leaving: str = "") -> None:
    """A pool whose workers show these metrics through the API server's proxy."""
    api.one("kvpools", pool())
    pods: list[dict[str, Any]] = [{"metadata": {"name": n}, "status": {"phase": "Running"}} for n in pages]
    pods.append({"metadata": {"name": "demo-new"}, "status": {"phase": "Pending"}})
    for pod in pods:
        if pod["metadata"]["name"] == leaving:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    core = "/api/v1/namespaces/demo/pods"
    api.answers[core] = {"kind": "PodList", "apiVersion": "v1", "items": pods}
    for name, page in pages.items():
        api.answers[f"{core}/{name}:7071/proxy/metrics"] = page.encode()


def test_a_pool_is_read_through_the_api_server(api: Recorded, kvroll: Kvroll) -> None:
    full, free = vllm_page(1, waiting=9, kv_used=0.97), vllm_page(1, kv_used=0.2)
    workers_of(api, {"demo-a-0": full, "demo-b-0": full, "demo-c-0": free}, leaving="demo-c-0")
    done = kvroll("wall", "demo", *FAST, *DEVICE, "-o", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["wall"] == "Capacity"
    assert {name: worker["wall"] for name, worker in found["workers"].items()} == {
        "demo-a-0": "Capacity",
        "demo-b-0": "Capacity",
    }


def test_a_pool_of_one_worker_is_named(api: Recorded, kvroll: Kvroll) -> None:
    workers_of(api, {"demo-a-0": vllm_page(1, waiting=9, kv_used=0.97)})
    said = kvroll("wall", "demo", *FAST, *DEVICE).stdout
    assert "demo: Capacity (Modelled)" in said
    assert "demo-a-0: Capacity (Modelled)" in said


def test_a_pool_without_workers_and_no_proxy_are_said(
    api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]
) -> None:
    workers_of(api, {})
    assert kvroll("wall", "demo", *FAST).exit_code == 1
    assert "expected running workers of demo, found none" in capfd.readouterr().err
    workers_of(api, {"demo-a-0": ""})
    message = 'pods "demo-a-0" is forbidden: User "me" cannot get resource "pods/proxy"'
    refusal = {"kind": "Status", "message": message}
    api.answers["/api/v1/namespaces/demo/pods/demo-a-0:7071/proxy/metrics"] = (403, refusal)
    assert kvroll("wall", "demo", *FAST).exit_code == 1
    assert capfd.readouterr().err == f"kvroll: {message}\n"


@pytest.mark.parametrize(("arguments", "found"), [((), "neither"), (("demo", "--metrics-url", "http://x"), "both")])
def test_a_pool_or_urls(
    kvroll: Kvroll, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], found: str
) -> None:
    assert kvroll("wall", *arguments).exit_code == 2
    assert capfd.readouterr().err == f"kvroll: expected a POOL or --metrics-url, found {found}\n"


def two_engines(look: int) -> str:
    """One vLLM server with two data-parallel engines, each of which reads 0.377 of the bandwidth."""
    one = vllm_page(look, read_bytes=0.377 * 3e12 * 0.05, flops=1e9)
    return (
        one + "\n".join(line for line in one.replace('engine="0"', 'engine="1"').splitlines() if "#" not in line) + "\n"
    )


def test_two_engines_on_a_page_are_judged_by_themselves(kvroll: Kvroll) -> None:
    found = judged(kvroll, two_engines, *DEVICE)
    assert [name.split()[-1] for name in found["workers"]] == ["engine=0", "engine=1"]
    for engine in (found, *found["workers"].values()):
        assert engine["wall"] != "Bandwidth"
        assert value(engine, "bandwidth_used") < 0.5  # type: ignore[operator]


def test_a_vllm_is_offered_what_it_has(kvroll: Kvroll, model: Path) -> None:
    page = partial(vllm_page, waiting=12, kv_used=0.98, read_bytes=1e9, flops=1e9)
    offered = [
        a["to"] for a in judged(kvroll, page, *DEVICE, "--model", str(model))["advice"] if a["lever"] == "kvCache"
    ]
    assert offered == ["fp8"]
    newer = judged(kvroll, page, *DEVICE, "--model", str(model), "--engine-version", "0.32.0")
    assert [a["to"] for a in newer["advice"] if a["lever"] == "kvCache"] == ["fp8", "turboquant_4bit_nc"]
    fp8 = judged(kvroll, page, *DEVICE, "--model", str(model), "--kv", "fp8")
    assert "kvCache" not in [a["lever"] for a in fp8["advice"]]


def test_a_dtype_that_the_engine_does_not_have_is_refused(
    kvroll: Kvroll, model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with served(partial(vllm_page, kv_used=0.98)) as url:
        done = kvroll("wall", "--metrics-url", url, *FAST, "--model", str(model), "--kv", "kivi4")
    assert done.exit_code == 2
    assert "expected a dtype of vLLM (kvCache): bf16, fp16, fp8, " in capfd.readouterr().err


def test_unknown_advises_nothing_and_says_what_brings_the_evidence(kvroll: Kvroll) -> None:
    found = judged(kvroll, vllm_page)
    assert (found["wall"], found["advice"]) == ("Unknown", [])
    assert {m["figure"]: m["bring"] for m in found["missing"]} == {
        "bandwidth_used": "restart vLLM with --enable-mfu-metrics, or say --model PATH",
        "compute_used": "restart vLLM with --enable-mfu-metrics, or say --model PATH",
    }
    with served(vllm_page) as url:
        said = kvroll("wall", "--metrics-url", url, *FAST).stdout
    assert "WHAT BRINGS IT" in said
    assert "nothing  -" not in said


def test_the_api_address_of_an_engine_means_its_metrics(kvroll: Kvroll) -> None:
    with served(partial(vllm_page, read_bytes=1e9, flops=1e9)) as url:
        assert kvroll("wall", "--metrics-url", f"{url}/v1", *FAST, *DEVICE).exit_code == 0


def test_metrics_of_tensorrt_llm_are_found_where_it_has_them(kvroll: Kvroll) -> None:
    def answer(path: str) -> str | None:
        page = "# TYPE trtllm_num_requests_running gauge\ntrtllm_num_requests_running 0.0\n"
        return {"/metrics": '[{"iterLatencyMS": 3}]', "/prometheus/metrics": page}.get(path)

    with answered(answer) as url:
        done = kvroll("wall", "--metrics-url", url, *FAST, "-o", "json")
    assert json.loads(done.stdout)["engine"] == "TensorRT-LLM"


def test_a_server_without_metrics_is_told_the_switch(kvroll: Kvroll, capfd: pytest.CaptureFixture[str]) -> None:
    with answered(lambda _: None) as url:
        assert kvroll("wall", "--metrics-url", f"{url}/v1", *FAST).exit_code == 1
    said = capfd.readouterr().err
    assert f"expected Prometheus metrics at {url}/metrics, found: " in said
    assert "SGLang has them with --enable-metrics, llama.cpp with --metrics" in said


def test_a_gateway_names_the_page_of_its_engine(kvroll: Kvroll, capfd: pytest.CaptureFixture[str]) -> None:
    from prometheus_client import generate_latest

    from kvroll_gateway.metrics import GatewayMetrics

    metrics = GatewayMetrics()
    metrics.tell_engine("http://127.0.0.1:37793/metrics")
    with answered(lambda _: generate_latest(metrics.registry).decode()) as url:
        assert kvroll("wall", "--metrics-url", url, *FAST).exit_code == 1
    assert "found those of kvroll's gateway, " in (said := capfd.readouterr().err)
    assert said.endswith("say --metrics-url http://127.0.0.1:37793/metrics\n")
