"""Loading holds at most one layer above the result: measured by the kernel's own high-water mark in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvroll_core.precision.formats import WEIGHT_FORMATS
from kvroll_kernels.dispatch import native_is_built
from tests.worker.tiny_model import write_model

ROOT = Path(__file__).parents[2]
SLACK_BYTES = 16 << 20  # huge pages that are not full: a rim of at most 2 MiB a matrix or 16 MiB chunk


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers of 32 MiB in bf16."""
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 64}
    return write_model(tmp_path_factory.mktemp("model"), **sizes, **heads)


def measured(folder: Path, *more: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, str(ROOT / "bench" / "load.py"), "--model", str(folder), "--json", *more]
    search = os.pathsep.join(path for path in sys.path if path)
    found: dict[str, dict[str, float]] = json.loads(
        subprocess.check_output(command, env={**os.environ, "PYTHONPATH": search})
    )
    return found


@pytest.mark.slow
@pytest.mark.skipif(not native_is_built(), reason="the reference keeps every weight in fp64")
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process its high-water mark")
def test_the_peak_is_at_most_a_layer_above_the_result(folder: Path) -> None:
    found = measured(folder)
    assert list(found) == list(WEIGHT_FORMATS)
    for dtype, load in found.items():
        assert load["layers_above"] <= 1, (dtype, load)
        assert load["peak_rss_bytes"] <= load["planned_bytes"] + load["layer_bytes"] + SLACK_BYTES, (dtype, load)


@pytest.mark.slow
@pytest.mark.skipif(not native_is_built(), reason="the reference keeps every weight in fp64")
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process its high-water mark")
def test_an_embedding_larger_than_all_layers_is_never_there_twice(tmp_path: Path) -> None:
    """64 MiB beside one layer of 3.5 MiB."""
    sizes = {"hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 1, "vocab_size": 65536}
    found = measured(write_model(tmp_path / "wide", **sizes), "--weights", "int4")["int4"]
    assert found["peak_rss_bytes"] <= found["planned_bytes"] + found["layer_bytes"] + SLACK_BYTES
