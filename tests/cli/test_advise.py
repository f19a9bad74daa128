"""`kvroll advise` on traces of every kind and on a live engine's page."""

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import Result

from kvroll_cli.table import table_of
from tests.cli.conftest import Recorded
from tests.cli.engine_pages import served, vllm_page
from tests.cli.test_plan import report as report_of
from tests.cli.test_wall import LLAMA_8B, workers_of

Kvroll = Callable[..., Result]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return tmp_path


def written(path: Path, *lines: dict[str, Any]) -> str:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def advised(kvroll: Kvroll, *arguments: str) -> dict[str, Any]:
    done = kvroll("advise", *arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def decisions(found: dict[str, Any]) -> dict[str, str]:
    return {step["lever"]: step["decision"] for step in found["steps"]}


def test_a_trace_of_token_ids(kvroll: Kvroll, tmp_path: Path, model: Path) -> None:
    system = list(range(320))
    lines = [
        {
            "arrival": n * 0.1,
            "duration": 60,
            "prompt_ids": [*system, *range(n * 1000, n * 1000 + 80)],
            "output_tokens": 3696,
        }
        for n in range(128)
    ]
    trace = written(tmp_path / "trace.jsonl", *lines)
    found = advised(kvroll, "--trace", trace, "--model", str(model), "--device-memory", "80GiB")
    assert found["traffic"]["peak_sessions"] == 128
    assert found["traffic"]["peak_tokens"] == 128 * 4096
    assert found["traffic"]["overlap"] == pytest.approx(127 * 320 / (128 * 400))
    assert decisions(found) == {
        "paging": "AlwaysOn",
        "prefixCache": "TurnOn",
        "kvCache": "TurnOn",
        "weights": "Leave",
        "replica": "Leave",
    }


def test_text_chats_and_hashed_blocks(kvroll: Kvroll, tmp_path: Path) -> None:
    system = "You are a helpful assistant. " * 20
    texts = [{"arrival": n, "prompt": f"{system}{n}", "output_tokens": 10} for n in range(3)]
    found = advised(kvroll, "--trace", written(tmp_path / "t", *texts))
    # 580 bytes of system prompt: four whole pages of 128 bytes, 32 tokens each, of 146 tokens.
    assert found["traffic"]["overlap"] == pytest.approx(2 * 128 / (3 * 146))
    chats = [
        {"arrival": n, "messages": [{"role": "user", "content": f"{system}{n}"}], "output_tokens": 10} for n in range(3)
    ]
    assert advised(kvroll, "--trace", written(tmp_path / "c", *chats))["traffic"]["overlap"] > 0.5
    mooncake = [
        {"timestamp": 0, "input_length": 1500, "output_length": 10, "hash_ids": [1, 2, 3]},
        {"timestamp": 3000, "input_length": 1500, "output_length": 10, "hash_ids": [1, 2, 4]},
    ]
    assert advised(kvroll, "--trace", written(tmp_path / "m", *mooncake))["traffic"]["overlap"] == 1024 / 3000


def test_durations_may_be_told_by_the_token(kvroll: Kvroll, tmp_path: Path) -> None:
    lines = [{"arrival": n, "prompt_ids": [n] * 40, "output_tokens": 100} for n in range(4)]
    trace = written(tmp_path / "trace", *lines)
    assert advised(kvroll, "--trace", trace)["traffic"]["peak_sessions"] is None
    assert advised(kvroll, "--trace", trace, "--seconds-per-token", "0.02")["traffic"]["peak_sessions"] == 2


def test_it_says_so_when_nothing_helps(kvroll: Kvroll, tmp_path: Path, model: Path) -> None:
    lines = [{"arrival": n, "duration": 1, "prompt_ids": [n] * 40, "output_tokens": 5} for n in range(4)]
    arguments = ("--trace", written(tmp_path / "trace", *lines), "--model", str(model), "-m", "80GiB")
    done = kvroll("advise", *arguments)
    assert done.exit_code == 0
    assert "nothing here will help this traffic" in done.stdout
    assert kvroll("advise", *arguments, "--exit-code").exit_code == 3


def test_a_live_engine(kvroll: Kvroll, model: Path) -> None:
    page = partial(vllm_page, waiting=12, kv_used=0.98, read_bytes=1e9, flops=1e9)
    with served(page) as url:
        found = advised(
            kvroll, "--metrics-url", url, "--interval", "0.2", "--model", str(model), "--device-bandwidth", "3TB"
        )
    assert found["traffic"]["peak_sessions"] == 44
    assert found["traffic"]["overlap"] == 0.25
    assert decisions(found)["prefixCache"] == "TurnOn"
    assert decisions(found)["kvCache"] == "TurnOn"
    assert "Capacity wall: 2.00 x the sessions fit" in found["steps"][2]["why"]


def test_a_live_pool_says_its_model_itself(api: Recorded, kvroll: Kvroll) -> None:
    page = vllm_page(1, waiting=12, kv_used=0.98, read_bytes=1e9, flops=1e9)
    workers_of(api, {"demo-a-0": page, "demo-b-0": page})
    report = "/api/v1/namespaces/demo/pods/demo-b-0:7071/proxy/report"
    api.answers[report] = report_of(3)  # the first one is of an older version
    found = advised(kvroll, "demo", "--interval", "0.2", "--device-bandwidth", "3TB")
    assert found["traffic"]["peak_sessions"] == 88
    assert found["traffic"]["peak_tokens"] > 0
    assert decisions(found)["kvCache"] == "TurnOn"
    del api.answers[report]
    silent = advised(kvroll, "demo", "--interval", "0.2", "--device-bandwidth", "3TB")
    assert decisions(silent)["kvCache"] == "NotTold"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "trace:2: expected a JSON object of a request, found"),
        ('{"arrival": 1, "prompt": "x"}', "trace:2: expected 'output_length'"),
        ('{"prompt": "x", "output_tokens": 1}', "trace:2: expected 'timestamp'"),
        ('{"arrival": 1, "output_tokens": 1}', "trace:2: expected 'prompt'"),
        ("[]", "trace:2: expected a JSON object"),
    ],
)
def test_a_line_that_is_no_request_is_named(
    kvroll: Kvroll, tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(f"\n{line}\n")
    assert kvroll("advise", "--trace", str(path)).exit_code == 1
    assert message in capfd.readouterr().err


def test_one_source_is_needed(kvroll: Kvroll, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert kvroll("advise").exit_code == 2
    assert "expected one of a POOL, --trace and --metrics-url, found none" in capfd.readouterr().err
    assert kvroll("advise", "demo", "--metrics-url", "http://x").exit_code == 2
    assert "found a POOL and --metrics-url" in capfd.readouterr().err
    assert kvroll("advise", "--trace", str(tmp_path / "none")).exit_code == 1
    assert "expected a trace of JSON lines, found no such file" in capfd.readouterr().err


def test_a_narrow_terminal_keeps_the_words_and_folds_the_reasons() -> None:
    table = table_of("LEVER", "DO", "BECAUSE")
    table.add_row("prefixCache", "TurnOn", "so many prompt tokens were the beginning of an earlier prompt " * 3)
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(table)
    lines = console.export_text().splitlines()
    assert lines[1].startswith("prefixCache  TurnOn  so many")
    assert "…" not in "".join(lines)
    assert len(lines) > 4


def test_a_trace_of_burstgpt(kvroll: Kvroll, tmp_path: Path) -> None:
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    rows = [f"{n * 2},ChatGPT,{100 + n},{50 if n else 0},150,Conversation log" for n in range(5)]
    path = tmp_path / "burst.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    found = advised(kvroll, "--trace", str(path), "--seconds-per-token", "0.1")
    assert found["traffic"]["requests"] == 4, "one that failed has no answer"
    assert found["traffic"]["overlap"] is None, "lengths do not tell what prompts share"
    assert found["traffic"]["peak_sessions"] == 3
    assert decisions(found)["prefixCache"] == "NotTold"


def test_what_vllms_benchmark_writes(kvroll: Kvroll, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told: dict[str, Any] = {
        "input_lens": [100, 200], "output_lens": [3, 2], "ttfts": [0.5, 1.0], "itls": [[0.25, 0.25], [0.5]],
        "start_times": [1000.0, 1000.75],
    }  # fmt: skip
    path = tmp_path / "result.json"
    path.write_text(json.dumps(told, indent=1))
    found = advised(kvroll, "--trace", str(path))
    assert (found["traffic"]["requests"], found["traffic"]["peak_sessions"]) == (2, 2)
    assert found["traffic"]["peak_tokens"] == 103 + 202
    path.write_text(json.dumps({k: v for k, v in told.items() if k != "start_times"}))
    assert kvroll("advise", "--trace", str(path)).exit_code == 1
    assert "expected start_times, found none: vllm bench serve" in capfd.readouterr().err


def test_a_live_vllm_is_advised_by_its_own_flags(kvroll: Kvroll, model: Path) -> None:
    page = partial(vllm_page, waiting=12, kv_used=0.98, read_bytes=1e9, flops=1e9)
    live = ("--interval", "0.2", "--model", str(model))
    with served(page) as url:
        found = advised(kvroll, "--metrics-url", url, *live, "--device-bandwidth", "3TB")
    assert found["steps"][2]["to"] == "fp8"
    assert "(by --kv-cache-dtype fp8)" in found["steps"][2]["why"]
    with served(vllm_page) as url:
        unknown = advised(kvroll, "--metrics-url", url, "--interval", "0.2")
    assert decisions(unknown)["kvCache"] == "NotTold"
    assert "--enable-mfu-metrics" in unknown["steps"][2]["why"]
