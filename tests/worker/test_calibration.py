"""The device measured with the kernels that are there: every built dtype, figures that scale as work does, memory given back."""

import gc
from pathlib import Path

import psutil
import pytest

from kvroll_core.budget import ModelShape
from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS
from kvroll_kernels import dispatch
from kvroll_kernels.dispatch import native_is_built
from kvroll_worker.engine import calibration as calibrating
from kvroll_worker.engine.calibration import MIB, SLICE_BYTES, Calibration
from kvroll_worker.engine.machine import cache_bytes

pytestmark = pytest.mark.skipif(not native_is_built(), reason="the reference takes seconds a piece")
SHAPE = ModelShape(4, 256, 4, 2, 64, 512, 1000, tied_head=True, max_positions=1024)


@pytest.fixture
def calibration(monkeypatch: pytest.MonkeyPatch) -> Calibration:
    monkeypatch.setattr(calibrating, "TIMED_BYTES", MIB)
    return Calibration(dispatch.load("native"), SHAPE, stream_bytes=2 * SLICE_BYTES)


def test_every_built_dtype_is_measured_once(calibration: Calibration) -> None:
    pieces = calibration.device_pieces() + calibration.format_pieces()
    built = [("weights", n) for n, f in WEIGHT_FORMATS.items() if f.built]
    built += [("kv", n) for n, f in KV_FORMATS.items() if f.built]
    assert [(p.kind, p.name) for p in pieces] == [("device", "bytes"), ("device", "flops"), *built]
    for piece in pieces:
        # Slower than a floppy disk or faster than any memory is a mistake in the units.
        assert 1e6 < piece.measure() < 1e14, piece


def test_a_dtype_of_fewer_bytes_is_not_credited_with_elements(calibration: Calibration) -> None:
    """Stored bytes a second: were elements counted instead, int4 would come out eight times fp32 at equal seconds."""
    wide, narrow = (max(calibration.weights_bytes_per_second(n) for _ in range(3)) for n in ("fp32", "int4"))
    assert narrow < 3 * wide


def test_memory_is_given_back(calibration: Calibration) -> None:
    big = Calibration(dispatch.load("native"), SHAPE, stream_bytes=128 * MIB)
    process = psutil.Process()
    before = process.memory_info().rss
    big.device_pieces()[0].measure()
    assert process.memory_info().rss - before > 96 * MIB
    assert big.peak_bytes >= 128 * MIB
    big.release()
    gc.collect()
    assert process.memory_info().rss - before < 32 * MIB


@pytest.mark.parametrize(("files", "expected"), [({"index0": "32K", "index3": "16M"}, 16 << 20), ({}, 32 << 20)])
def test_the_largest_cache_counts(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, size in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "size").write_text(f"{size}\n")
    assert cache_bytes(tmp_path) == expected
