"""The rollout is pure: what it imports can neither wait, nor look at a clock, nor speak to anybody."""

import ast
from pathlib import Path

import pytest

import kvroll_operator.rollout

FORBIDDEN = {"asyncio", "time", "random", "grpc", "kopf", "kubernetes", "aiohttp", "structlog", "kvroll"}
FILES = sorted(Path(kvroll_operator.rollout.__path__[0]).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_no_impure_import(path: Path) -> None:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    roots = {name.partition(".")[0] for name in names}
    assert not roots & FORBIDDEN
    assert not any(name.startswith("kvroll_operator.cluster") for name in names)
