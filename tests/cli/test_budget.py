"""`kvroll budget`: arithmetic that anybody can check by hand, on a model that everybody knows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from kvroll_cli.errors import CliError
from kvroll_cli.quantity import parse_bytes
from kvroll_core.formats import KV_FORMATS, WEIGHT_FORMATS

Kvroll = Callable[..., Result]
LLAMA_70B: dict[str, Any] = {
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    return tmp_path


def reckoned(kvroll: Kvroll, *arguments: str) -> list[dict[str, Any]]:
    done = kvroll("budget", *arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["precisions"]
    return found


def test_llama_70b_comes_to_the_known_sums(kvroll: Kvroll, model: Path) -> None:
    found = {
        (p["weights"], p["kvCache"]): p for p in reckoned(kvroll, str(model), "-m", "320Gi", "--max-model-len", "4096")
    }
    assert set(found) == {
        (weights, kv)
        for weights, entry in WEIGHT_FORMATS.items()
        for kv, kv_entry in KV_FORMATS.items()
        if entry.built and kv_entry.built
    }
    # 70.55 billion parameters at two bytes; 2 * 80 layers * 8 heads * 128 * 2 bytes a token.
    assert found["bf16", "bf16"]["weightsBytes"] == pytest.approx(2 * 70.55e9, rel=0.001)
    assert found["bf16", "bf16"]["kvTokenBytes"] == 320 * 1024
    assert found["bf16", "int8"]["kvTokenBytes"] == 165 * 1024
    sessions = [found[pair]["sessionsAtMaxLen"] for pair in (("bf16", "bf16"), ("bf16", "int8"), ("int8", "int8"))]
    assert 0 < sessions[0] < sessions[1] < sessions[2]
    for line in found.values():
        assert line["tokens"] == 32 * line["pages"]
        assert line["sessionsAtMaxLen"] == line["tokens"] // 4096
        total = line["weightsBytes"] + line["activationsBytes"] + line["kvBytes"]
        assert 0.89 * 320 * 2**30 < total <= 0.9 * 320 * 2**30


def test_one_precision(kvroll: Kvroll, model: Path) -> None:
    found = reckoned(kvroll, str(model / "config.json"), "-m", "320GiB", "--weights", "int8", "--kv-cache", "bf16")
    assert [(p["weights"], p["kvCache"]) for p in found] == [("int8", "bf16")]


def test_what_does_not_fit_says_the_arithmetic(kvroll: Kvroll, model: Path) -> None:
    done = kvroll("budget", str(model), "-m", "100Gi", "--max-model-len", "4096")
    assert done.exit_code == 0
    assert "bf16/bf16: needs 131.6 GiB for weights (bf16) and activations" in done.stderr
    assert "does not fit" in done.stdout


def test_it_fails_when_no_precision_fits(kvroll: Kvroll, model: Path) -> None:
    assert kvroll("budget", str(model), "-m", "10Gi").exit_code == 1


def test_a_dtype_that_is_not_built_is_refused(kvroll: Kvroll, model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert kvroll("budget", str(model), "-m", "320Gi", "--kv-cache", "kivi2").exit_code == 1
    said = capfd.readouterr().err
    assert said.startswith("kvroll: KV cache dtype kivi2 is not built in this version; use one of fp32, bf16, ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("{}", "expected num_attention_heads"),
        (None, "expected a model folder or its config.json, found no such file"),
    ],
)
def test_a_file_that_is_no_model(
    kvroll: Kvroll, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    assert kvroll("budget", str(tmp_path / "config.json"), "-m", "1Gi").exit_code == 1
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("80Gi", 80 * 2**30), ("80GiB", 80 * 2**30), ("1.5M", 1_500_000), ("512Mi", 2**29), ("2kB", 2000)],
)
def test_bytes_are_read_as_people_and_kubernetes_write_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1Gi", "80 Gi", "lots", "1e9", "Gi", "80gi"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="expected a quantity of bytes"):
        parse_bytes(text)
