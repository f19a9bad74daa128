"""A container's PID 1 ignores SIGTERM until a handler is set: every server must set one before its slow imports."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("room", ["worker", "gateway", "operator"])
def test_sigterm_is_handled_before_the_first_import_of_ours(room: str) -> None:
    tree = ast.parse((ROOT / room / f"kvroll_{room}" / "__main__.py").read_text(encoding="utf-8"))
    lines = {"handler": 0, "ours": 0}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvroll"):
            lines["ours"] = lines["ours"] or node.lineno
        if isinstance(node, ast.Expr) and ast.unparse(node).startswith("signal.signal(signal.SIGTERM"):
            lines["handler"] = node.lineno
    assert 0 < lines["handler"] < lines["ours"]
