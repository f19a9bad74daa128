"""What becomes of each part's own report in build/bench/engine.json, whose keys others read."""

import json
import sys
from pathlib import Path
from typing import Any

import engine as bench
import pytest

TRACE = {
    "runs": [
        {"pages": pages, "prefix_cache": mode, "waste_percent": 3.0, "contiguous_waste_percent": 70.0, "hit_token_rate": rate,
         "prefill_tokens_saved": saved, "steps": 9}
        for pages in (250, 1600)
        for mode, rate, saved in (("Off", 0.0, 0), ("On", 0.5, pages), ("Auto", 0.4, 7))
    ]
}  # fmt: skip


def test_paging_is_told_without_the_cache_and_the_cache_with_it_on_the_largest_pool() -> None:
    assert bench.paging(TRACE) == {
        "paging": {"waste_percent": 3.0, "contiguous_waste_percent": 70.0},
        "prefix": {"hit_token_rate": 0.5, "prefill_tokens_saved": 1600},
    }


def test_loads_keep_their_three_figures() -> None:
    figures = {"seconds": 1.5, "peak_rss_bytes": 9.0, "result_bytes": 7.0, "layers_above": 0.5}
    assert bench.load({"int8": figures}) == {
        "load": {"int8": {"seconds": 1.5, "peak_rss_bytes": 9.0, "result_bytes": 7.0}}
    }


PART = "import json, sys; open(sys.argv[sys.argv.index('--out') + 1], 'w').write(json.dumps({report}))"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Parts that write what they are told; `load` is missing."""
    monkeypatch.setattr(bench, "HERE", tmp_path)
    (tmp_path / "paging.py").write_text(PART.format(report=json.dumps(TRACE)))
    (tmp_path / "quality.py").write_text(PART.format(report={"quality": [{"kv": "int8"}]}))
    return tmp_path


def ran(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, Any]:
    out = folder / "out/engine.json"
    monkeypatch.setattr(sys, "argv", ["engine.py", "--out", str(out), *arguments])
    return bench.main(), json.loads(out.read_text())


def test_a_missing_part_is_named_and_costs_only_its_own_keys(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = ran(folder, monkeypatch)
    assert (code, sorted(report)) == (1, ["paging", "prefix", "quality"])
    assert "expected bench/load.py, found none" in capsys.readouterr().err


def test_one_part_alone_keeps_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(folder, monkeypatch)
    (folder / "quality.py").write_text(PART.format(report={"quality": []}))
    code, report = ran(folder, monkeypatch, "--only", "quality")
    assert (code, report["quality"], sorted(report)) == (0, [], ["paging", "prefix", "quality"])


def test_a_part_that_fails_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "quality.py").write_text("raise SystemExit(3)")
    code, report = ran(folder, monkeypatch, "--only", "quality")
    assert (code, report) == (1, {})
    assert "bench/quality.py to succeed, it ended with 3" in capsys.readouterr().err
