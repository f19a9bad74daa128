"""The worker's flags: what cannot run is refused before anything is loaded."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from kvroll_worker.config import parse, parse_bytes
from kvroll_worker.errors import ConfigError
from kvroll_worker.main import EXIT_CANNOT_FIT, main


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """`main` sets the process's logs up, here on a stream that ends with the test."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_flags_and_environment_become_a_config(folder: Path) -> None:
    env = {
        "KVROLL_WORKER_ID": "pod-1",
        "KVROLL_POD_UID": "uid",
        "KVROLL_POD_IP": "10.0.0.7",
        "KVROLL_TERMINATION_GRACE_SECONDS": "30",
    }
    args = [
        "--model-uri",
        f"file://{folder}",
        "--model-name",
        "m",
        "--kv-cache",
        "int8",
        "--kv-memory",
        "1GiB",
        "--grpc-port",
        "0",
        "--spill-memory",
        "64MiB",
        "--prefix-cache",
        "Off",
    ]
    config = parse(args, env)
    assert (config.model_dir, config.precision.kv_cache, config.kv_memory_bytes) == (folder, "int8", 1 << 30)
    assert (config.spill_memory_bytes, config.prefix_cache) == (64 << 20, "Off")
    assert (config.worker_id, config.peer_host, config.finish_seconds, config.admit) == (
        "pod-1",
        "10.0.0.7",
        25.0,
        False,
    )
    assert config.instance_id.startswith("uid/")
    assert config.instance_id != parse(args, env).instance_id, "every process start is another instance"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--residual-tokens", "33"], "residual_tokens must be a multiple of 32"),
        (["--weights", "int3"], "'int3' is unknown"),
        (["--device", "CUDA"], "expected CPU or Auto"),
        (["--kv-memory", "much"], "--kv-memory: expected a size like 256MiB"),
        (["--spill-memory", "much"], "--spill-memory: expected a size like 256MiB"),
        (["--model-uri", "s3://bucket/model"], "not built yet"),
        (["--model-uri", "file://elsewhere/model"], "expected no host"),
        (["--model-uri", "file:///nowhere"], "a folder with config.json"),
    ],
)
def test_what_cannot_run_is_refused_by_name(folder: Path, flags: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse(["--model-uri", f"file://{folder}", "--model-name", "m", *flags], {})


def test_a_wrong_flag_ends_with_code_2_and_the_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model-uri", f"file://{folder}", "--model-name", "m", "--kv-cache", "kivi3"]) == EXIT_CANNOT_FIT
    assert "KV cache dtype 'kivi3' is unknown" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"), [("1024", 1024), ("256MiB", 256 << 20), ("2Gi", 2 << 30), ("3 kib", 3072)]
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "١٢", "9" * 5000, "1.5GiB", "-1", "1 GiB x"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a size"):
        parse_bytes(text)


def test_the_knobs_of_a_precision(folder: Path) -> None:
    args = ["--model-uri", f"file://{folder}", "--model-name", "m", "--weights", "int4"]
    config = parse([*args, "--weight-block-size", "128", "--head", "int8"], {})
    assert (config.precision.weight_block, config.precision.head) == (128, "int8")
    assert (parse(args, {}).precision.weight_block, parse(args, {}).precision.head) == (64, "Same")
    with pytest.raises(ConfigError, match="weight block size 48 is unknown to int4"):
        parse([*args, "--weight-block-size", "48"], {})


def test_layers_to_skip(folder: Path) -> None:
    args = ["--model-uri", f"file://{folder}", "--model-name", "m", "--kv-cache"]
    assert parse([*args, "int8", "--kv-skip-layers", "29,0"], {}).precision.skip_layers == (0, 29)
    assert parse([*args, "int8"], {}).precision.skip_layers == ()
    with pytest.raises(ConfigError, match="--kv-skip-layers: expected layers like 0,1,29, found 'last'"):
        parse([*args, "int8", "--kv-skip-layers", "last"], {})
