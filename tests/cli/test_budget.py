"""`kvroll budget`: arithmetic that anybody can check by hand, on a model that everybody knows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
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


def reckoned(kvroll: Kvroll, model: Path, *arguments: str) -> dict[str, Any]:
    done = kvroll("budget", "--model", str(model), *arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_skipped_layers_stay_16_bit_and_rule_sealed_formats_out(kvroll: Kvroll, model: Path) -> None:
    found = reckoned(kvroll, model, "--tokens", "4096", "--kv", "int8", "--skip-layers", "0,79")
    assert found["kv_bytes_per_token"] == 78 * 8 * (2 * 128 + 8) + 2 * 8 * 4 * 128
    every = reckoned(kvroll, model, "--tokens", "4096", "--skip-layers", "0,79")
    refused = {p["kv_cache"] for p in every["precisions"] if "problem" in p}
    assert refused == {"kivi4", "kivi2"}


def test_a_layer_that_the_model_has_not_is_named(
    kvroll: Kvroll, model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert kvroll("budget", "--model", str(model), "--kv", "int8", "--skip-layers", "80").exit_code == 1
    assert "expected layers to skip from 0 to 79, found 80" in capfd.readouterr().err


def test_llama_70b_comes_to_the_known_sums(kvroll: Kvroll, model: Path) -> None:
    found = reckoned(kvroll, model, "--device-memory", "80GiB", "--sessions", "128", "--tokens", "4096")
    assert found["kv_bytes_per_token"] == 320 * 1024
    assert found["kv_bytes_total"] == 160 * 2**30
    assert found["weights_bytes"] == pytest.approx(2 * 70.55e9, rel=0.001)
    assert (found["fits"], found["max_sessions"]) == (False, 0)
    assert (found["sessions"], found["tokens"], found["device_bytes"]) == (128, 4096, 80 * 2**30)
    lines = {(p["weights"], p["kv_cache"]): p for p in found["precisions"]}
    assert set(lines) == {(w, k) for w in WEIGHT_FORMATS for k in KV_FORMATS}
    assert lines["int4", "int8"]["kv_bytes_total"] == 82.5 * 2**30
    assert lines["int4", "int8"]["max_sessions"] > 0
    assert lines["bf16", "bf16"] == {k: found[k] for k in lines["bf16", "bf16"]}
    for line in lines.values():
        assert line["fits"] == (line["max_sessions"] >= 128)
        assert line["total_bytes"] == pytest.approx(
            line["weights_bytes"] + line["activations_bytes"] + line["kv_bytes_total"], abs=1
        )


def test_one_precision(kvroll: Kvroll, model: Path) -> None:
    arguments = ("-m", "320GiB", "--weights", "int8", "--kv", "fp8_e4m3", "--tokens", "4096")
    found = reckoned(kvroll, model / "config.json", *arguments)
    assert [(p["weights"], p["kv_cache"]) for p in found["precisions"]] == [("int8", "fp8_e4m3")]
    assert (found["weights"], found["kv_cache"], found["fits"]) == ("int8", "fp8_e4m3", True)


def test_without_a_device_only_sizes_are_told(kvroll: Kvroll, model: Path) -> None:
    found = reckoned(kvroll, model)
    assert (found["tokens"], found["fits"], found["max_sessions"]) == (131072, None, None)
    assert found["kv_bytes_total"] == 40 * 2**30


def test_the_table_shows_every_format_and_says_the_sum(kvroll: Kvroll, model: Path) -> None:
    done = kvroll("budget", "--model", str(model), "-m", "160GiB", "--sessions", "8", "--tokens", "4096")
    assert done.exit_code == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1 : 3 + len(KV_FORMATS)]}
    assert set(KV_FORMATS) <= set(rows)
    assert "320.0 KiB" in rows["bf16"]
    last = done.stdout.splitlines()[-1]
    assert "bf16 weights 131.4 GiB" in last
    assert "fits into 144.0 GiB (160.0 GiB less 10% headroom); at most 9 sessions" in last


def test_the_exit_code_says_no_when_asked_to(kvroll: Kvroll, model: Path) -> None:
    small, large = ("-m", "10Gi"), ("-m", "1TiB")
    assert kvroll("budget", "--model", str(model), *small).exit_code == 0
    assert kvroll("budget", "--model", str(model), *small, "--exit-code").exit_code == 3
    assert kvroll("budget", "--model", str(model), *large, "--exit-code").exit_code == 0


def test_yaml_says_the_same_as_json(kvroll: Kvroll, model: Path) -> None:
    done = kvroll("budget", "--model", str(model), "-m", "320GiB", "-o", "yaml")
    assert yaml.safe_load(done.stdout) == reckoned(kvroll, model, "-m", "320GiB")


def test_the_sweep_crosses_the_ceiling_where_the_sessions_end(kvroll: Kvroll, model: Path, tmp_path: Path) -> None:
    arguments = ("-m", "320GiB", "--tokens", "4096", "--weights", "int8")
    found = reckoned(kvroll, model, *arguments, "--sweep")
    over = [p["sessions"] for p in found["sweep"] if p["total_bytes"] > found["usable_bytes"]]
    under = [p["sessions"] for p in found["sweep"] if p["total_bytes"] <= found["usable_bytes"]]
    assert max(under) <= found["max_sessions"] < min(over)
    svg = tmp_path / "sweep.svg"
    done = kvroll("budget", "--model", str(model), *arguments, "--sweep", "--svg", str(svg))
    assert done.exit_code == 0
    assert f"bf16, fp16: {found['max_sessions']} sessions" in done.stdout
    root = ElementTree.parse(svg).getroot()
    text = " ".join(root.itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert root.tag.endswith("svg")
    assert "the ceiling, 288.0 GiB" in text
    assert f"bf16, fp16: {found['max_sessions']} sessions" in text


def test_a_format_that_is_not_built_is_reckoned_and_marked(kvroll: Kvroll, model: Path) -> None:
    for name, dtype in KV_FORMATS.items():
        assert reckoned(kvroll, model, "--kv", name)["built"] is dtype.built


def test_an_unknown_dtype_is_refused(kvroll: Kvroll, model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert kvroll("budget", "--model", str(model), "--kv", "fp7").exit_code == 1
    assert capfd.readouterr().err.startswith("kvroll: KV cache dtype 'fp7' is unknown; use one of fp32, bf16, ")


def test_weights_of_a_given_size_are_taken_as_they_are(kvroll: Kvroll, model: Path) -> None:
    found = reckoned(kvroll, model, "--weights-bytes", "100GiB", "-m", "320GiB", "--tokens", "4096")
    assert found["weights_bytes"] == 100 * 2**30
    assert {p["weights"] for p in found["precisions"]} == {"bf16"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("{}", "config.json: expected num_attention_heads, as in the config.json of"),
        (None, "expected a model folder or its config.json, found no such file"),
    ],
)
def test_a_file_that_is_no_model(
    kvroll: Kvroll, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    assert kvroll("budget", "--model", str(tmp_path / "config.json"), "-m", "1Gi").exit_code == 1
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
