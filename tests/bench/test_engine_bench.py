"""What becomes of each part's own report in build/bench/engine.json, whose keys others read."""

import json
import sys
from pathlib import Path
from typing import Any

import engine as bench
import load
import pytest
import quality

from kvroll_worker.evaluate.needles import DEPTHS

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


QUALITY: dict[str, Any] = dict.fromkeys(bench.QUALITY_KEYS, 0.5) | {
    "weights": "bf16",
    "kv": "int8",
    "needles": 20,
    "seconds": 9.0,
}


def test_quality_rows_keep_their_seven_figures() -> None:
    [row] = bench.quality({"quality": [QUALITY]})["quality"]
    assert list(row) == ["weights", "kv", "top1_agreement", "kl_mean", "kl_p99", "ppl_delta", "needle_recall"]


PART = "import json, sys; open(sys.argv[sys.argv.index('--out') + 1], 'w').write(json.dumps({report}))"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Parts that write what they are told; `load` is missing."""
    monkeypatch.setattr(bench, "HERE", tmp_path)
    (tmp_path / "paging.py").write_text(PART.format(report=json.dumps(TRACE)))
    (tmp_path / "quality.py").write_text(PART.format(report={"quality": [QUALITY]}))
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
    assert "quality.json, it ended with 3; FileNotFoundError" in capsys.readouterr().err


def test_what_a_part_had_before_it_failed_is_joined(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "quality.py").write_text(PART.format(report={"quality": [QUALITY]}) + "\nraise SystemExit(1)")
    code, report = ran(folder, monkeypatch)
    assert code == 1
    assert (sorted(report), len(report["quality"])) == (["paging", "prefix", "quality"], 1)
    assert "bench/quality.py to succeed, it ended with 1" in capsys.readouterr().err


@pytest.mark.parametrize("written", ["{", "[]", '{"quality": [{"kv": "int8"}]}', '{"rows": []}'])
def test_an_older_or_broken_file_is_never_taken_for_this_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    ran(folder, monkeypatch, "--only", "quality")
    (folder / "quality.py").write_text(f"import sys; open(sys.argv[2], 'w').write({written!r})")
    code, report = ran(folder, monkeypatch)
    assert (code, sorted(report)) == (1, ["paging", "prefix"])
    assert "expected bench/quality.py to write its figures" in capsys.readouterr().err


def test_a_weight_dtype_that_fails_costs_only_its_own_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(folder: Path, dtype: str) -> dict[str, float]:
        if dtype == "int8":
            raise load.LoadFailedError("int8: out of memory")
        return {"seconds": 1.0}

    monkeypatch.setattr(load, "_in_a_process", one)
    out = tmp_path / "load.json"
    found, failures = load.measure(tmp_path, ["bf16", "int8", "int4"], out)
    assert json.loads(out.read_text()) == found == {"bf16": {"seconds": 1.0}, "int4": {"seconds": 1.0}}
    assert failures == ["int8: out of memory"]


def test_a_format_that_fails_costs_only_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(weights: str, kv_cache: str, base: object, sizes: quality.Sizes) -> tuple[dict[str, Any], Any]:
        if kv_cache == "int8":
            raise ValueError("no such kernel")
        return {"kv": kv_cache}, "logprobs"

    monkeypatch.setattr(quality, "row", row)
    failures: list[str] = []
    wanted = [("bf16", "bf16"), ("bf16", "int8"), ("bf16", "mxfp8")]
    assert [one["kv"] for one in quality.measure(quality.Sizes(1), wanted, failures)] == ["bf16", "mxfp8"]
    assert failures == ["weights bf16, KV int8: ValueError: no such kernel"]


def test_what_is_claimed_within_two_points_is_asked_for_sixty_needles() -> None:
    sizes = quality.Sizes(1)
    asked = {case: sizes.seeds_of(*case) * len(sizes.lengths) * len(DEPTHS) for case in quality.cases()}
    assert asked["bf16", "bf16"] == asked["bf16", "fp8_e4m3"] == 60
    assert set(asked.values()) == {20, 60}
    assert 100 / 60 < 2
    assert quality.Sizes(1, seeds=2).seeds_of("bf16", "int8") == 2
