"""`kvroll budget`: arithmetic that anybody can check by hand, on a model that everybody knows."""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import Result

from kvroll_cli.errors import CliError
from kvroll_cli.quantity import parse_bytes
from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS

Kvroll = Callable[..., Result]
LLAMA_70B: dict[str, Any] = {
    "model_type": "llama",
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
    assert kvroll("budget", "--model", str(model), "--kv", "int8", "--skip-layers", "80").exit_code == 2
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
    assert found["model"]["family"] == "llama"
    assert found["kv_bytes_constant_per_session"] == 0
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


@pytest.mark.slow
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
    assert kvroll("budget", "--model", str(model), "--kv", "fp7").exit_code == 2
    assert capfd.readouterr().err.startswith("kvroll: KV cache dtype 'fp7' is unknown; use one of fp32, bf16, ")


def test_weights_of_a_given_size_are_taken_as_they_are(kvroll: Kvroll, model: Path) -> None:
    found = reckoned(kvroll, model, "--weights-bytes", "100GiB", "-m", "320GiB", "--tokens", "4096")
    assert found["weights_bytes"] == 100 * 2**30
    assert {p["weights"] for p in found["precisions"]} == {"bf16"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("{}", "config.json: expected model_type, or an architecture that we know, found None"),
        (None, "expected a model folder or its config.json, found no such file"),
    ],
)
def test_a_file_that_is_no_model(
    kvroll: Kvroll, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    assert kvroll("budget", "--model", str(tmp_path / "config.json"), "-m", "1Gi").exit_code == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("80Gi", 80 * 2**30), ("80GiB", 80 * 2**30), ("1.5M", 1_500_000), ("512Mi", 2**29), ("2kB", 2000)],
)
def test_bytes_are_read_as_people_and_kubernetes_write_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1Gi", "80 Gi", "lots", "1e9", "Gi", "80gi", "١Gi", "0.4", "1" * 60])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="expected a quantity of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--skip-layers", "99"), "expected layers to skip from 0 to 79, found 99"),
        (("--skip-layers", "a"), "expected layers like 0,1,29, found 'a'"),
        (("-m", "80GX"), "expected a quantity of bytes"),
        (("-m", "9" * 400), "expected a quantity of bytes"),
        (
            ("--svg", "/proc/nowhere/chart.svg", "-m", "320GiB", "--tokens", "4096"),
            "expected a file that can be written",
        ),
        (("--headroom", "nan"), "expected --headroom from 0.0 to 0.9"),
        (
            ("--gpu-memory-utilization", "0.9", "--headroom", "0.1"),
            "expected one of --headroom and --gpu-memory-utilization",
        ),
        (("--tp", "3"), "64 attention heads do not divide by 3 tensor-parallel ranks"),
        (("--assume", "magic"), "expected one of full-attention"),
        (("--weights", "nf4"), "weights dtype 'nf4' is unknown"),
    ],
)
def test_a_wrong_option_is_a_sentence_and_2(
    kvroll: Kvroll, model: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert kvroll("budget", "--model", str(model), *arguments).exit_code == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"[1,2]", b"null", b"3", b'"a"', b"\xff\xfe\x00", b"[" * 100_000, b"{" + b"9" * 5000]
)
def test_a_config_that_is_none_is_a_sentence_and_2(kvroll: Kvroll, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    done = kvroll("budget", "--model", str(tmp_path))
    assert done.exit_code == 2
    assert isinstance(done.exception, CliError | SystemExit)


def test_ranks_blocks_and_a_pool_of_bytes(kvroll: Kvroll, model: Path) -> None:
    found = reckoned(
        kvroll, model, "--tp", "4", "--dp", "2", "--block-size", "16", "--kv-memory", "10GiB", "--tokens", "4096"
    )
    assert found["kv_bytes_per_token"] == 320 * 1024
    assert found["ranks"]["kv_bytes_per_token"] == 80 * 1024
    assert found["ranks"]["devices"] == 8
    assert found["kv_pool_tokens"] == 10 * 2**30 // (80 * 1024 * 16) * 16
    assert found["max_sessions"] == 2 * (10 * 2**30 // (80 * 1024 * 4096))
    assert found["block_tokens"] == 16
    used = reckoned(kvroll, model, "-m", "80GiB", "--gpu-memory-utilization", "0.9", "--tp", "4", "--tokens", "4096")
    assert used["usable_bytes"] == int(80 * 2**30 * 0.9)
    assert used["max_sessions"] > 0


def test_an_assumed_family_is_marked_in_the_document_and_the_table(kvroll: Kvroll, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B | {"model_type": "qwen9", "sliding_window": 128}))
    assert kvroll("budget", "--model", str(tmp_path)).exit_code == 2
    found = reckoned(kvroll, tmp_path, "--assume", "full-attention")
    assert (found["assumed"], found["model"]["is_bound"]) == ("full-attention", True)
    assert all(p["assumed"] == "full-attention" for p in found["precisions"] if "problem" not in p)
    shown = kvroll("budget", "--model", str(tmp_path), "--assume", "full-attention").stdout
    assert "BOUND, NOT A FIGURE: qwen9 is assumed to be full-attention" in shown


def test_a_quantised_checkpoint_brings_its_precision(kvroll: Kvroll, tmp_path: Path) -> None:
    quantised = {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B | {"quantization_config": quantised}))
    found = reckoned(kvroll, tmp_path)
    assert (found["weights"], found["kv_cache"]) == ("fp8", "fp8_e4m3")
    assert found["kv_cache_source"] == "auto: quantization_config names fp8_e4m3 for the KV cache"
    assert found["weights_bytes"] == pytest.approx(72.6e9, rel=0.01)


def safetensors_of(tensors: dict[str, int]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * at


def test_headers_say_what_the_weights_take(kvroll: Kvroll, model: Path) -> None:
    for index in (1, 2):
        (model / f"model-0000{index}-of-00002.safetensors").write_bytes(safetensors_of({"a": 1000 * index, "b": 24}))
    found = reckoned(kvroll, model)
    assert found["weights_bytes"] == 3048
    assert found["weights_source"] == "headers of 2 safetensors files"
    (model / "broken.safetensors").write_bytes(b"\xff" * 16)
    assert kvroll("budget", "--model", str(model)).exit_code == 2


def test_a_model_of_the_hub_is_read_by_config_and_headers(kvroll: Kvroll, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "config.json": json.dumps(LLAMA_70B).encode(),
        "model.safetensors.index.json": json.dumps(
            {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
        ).encode(),
        "one.safetensors": safetensors_of({"a": 100_000}),
        "two.safetensors": safetensors_of({"b": 200_000}),
    }
    with hub(files) as (url, sent):
        monkeypatch.setenv("HF_ENDPOINT", url)
        found = reckoned(kvroll, Path("hf://org/name"))
        assert kvroll("budget", "--model", "hf://org/other").exit_code == 2
    assert found["weights_bytes"] == 300_000
    assert sum(sent) < 10_000
    assert kvroll("budget", "--model", "hf://org").exit_code == 2


@contextmanager
def hub(files: dict[str, bytes]) -> Iterator[tuple[str, list[int]]]:
    """A hub that knows ranges, and the bytes that it sent."""
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path.removeprefix("/org/name/resolve/main/"))
            first, last = map(int, self.headers["range"].removeprefix("bytes=").split("-"))
            part = b"" if content is None else content[first : last + 1]
            self.send_response(404 if content is None else 206)
            self.send_header("content-length", str(len(part)))
            self.end_headers()
            self.wfile.write(part)
            sent.append(len(part))

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_curves_have_colours_of_their_own_and_a_legend(kvroll: Kvroll, model: Path, tmp_path: Path) -> None:
    svg = tmp_path / "chart.svg"
    assert kvroll("budget", "--model", str(model), "-m", "320GiB", "--tokens", "4096", "--svg", str(svg)).exit_code == 0
    text = svg.read_text()
    curves = re.findall(r"fill: none; (?:stroke-dasharray: [^;]*; stroke-dashoffset: 0; )?stroke: (#[0-9a-f]{6})", text)
    assert len(set(curves)) >= 5
    shown = " ".join(ElementTree.fromstring(text).itertext())
    assert "kivi4: " in shown
    assert "sessions" in shown


def test_without_the_plotting_library_the_chart_says_what_to_install(
    kvroll: Kvroll, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = kvroll("budget", "--model", str(model), "-m", "320GiB", "--tokens", "4096", "--svg", str(tmp_path / "a.svg"))
    assert done.exit_code == 1
    assert "pip install 'kvroll[charts]'" in capfd.readouterr().err
