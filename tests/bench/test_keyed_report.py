"""Parts of one report keep each other's figures, whatever the order, and when they end at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvroll_bench.keyed_report import DamagedReportError, merge_key

WRITE = "import sys; from pathlib import Path; from kvroll_bench.keyed_report import merge_key\n"
WRITE += "for n in range(40): merge_key(Path(sys.argv[1]), sys.argv[2] + str(n), n)"


def test_a_part_replaces_its_own_key_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "bench" / "faults.json"
    merge_key(path, "requests", {"sent": 1})
    merge_key(path, "half_open", [{"lost": 0}])
    merge_key(path, "requests", {"sent": 2})
    assert json.loads(path.read_text()) == {"requests": {"sent": 2}, "half_open": [{"lost": 0}]}
    assert [p.name for p in path.parent.iterdir() if not p.name.endswith(".lock")] == ["faults.json"]


def test_parts_that_end_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{WRITE}", str(path)]
    writers = [subprocess.Popen([*command, part]) for part in ("a", "b", "c")]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert json.loads(path.read_text()) == {f"{part}{n}": n for part in "abc" for n in range(40)}


@pytest.mark.parametrize("text", ["[1]", '{"requests": ', "null"])
def test_a_damaged_report_is_told_and_left(tmp_path: Path, text: str) -> None:
    path = tmp_path / "faults.json"
    path.write_text(text)
    with pytest.raises(DamagedReportError, match=r"expected a JSON object in .*; remove it"):
        merge_key(path, "requests", 1)
    assert path.read_text() == text
