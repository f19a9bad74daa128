"""The pages docs/life-of-a-*.md lead a reader through the code: the files that they name are there, and the roll's are in reading order."""

import ast
import re
from itertools import combinations
from pathlib import Path

import pytest

from tests.docs.written import ROOT

PAGES = sorted(ROOT.glob("docs/life-of-a-*.md"))
ROLL = ROOT / "docs" / "life-of-a-roll.md"
PLACES = ("", "operator/kvroll_operator/", "gateway/kvroll_gateway/", "worker/kvroll_worker/", "core/kvroll_core/")


def named(text: str) -> list[str]:
    """The source files that a page names, in its order."""
    return re.findall(r"`([\w./-]+\.(?:py|proto|cpp|h))`", text)


def found(name: str) -> Path | None:
    """The file that is meant: by its path in the repository, or below one of the rooms."""
    return next((path for place in PLACES if (path := ROOT / place / name).is_file()), None)


def imports(path: Path) -> set[str]:
    """The modules that a file imports, with the names that may be modules of a package."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def module_of(path: Path) -> str:
    """The dotted name of a file; its first folder is a room, no package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])


def backward_steps(paths: list[Path]) -> list[tuple[str, str]]:
    """(earlier, later) of each pair where the later file imports the earlier one: a reader would have to go back."""
    known = {path: imports(path) for path in paths}
    return [(a.name, b.name) for a, b in combinations(paths, 2) if module_of(a) in known[b]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_of_a_life_are_there(page: Path) -> None:
    names = named(page.read_text())
    assert names, f"{page.name} names no file"
    assert [name for name in names if found(name) is None] == []


def test_a_roll_is_read_without_going_back() -> None:
    paths = [path for name in named(ROLL.read_text()) if (path := found(name)) is not None]
    assert len(paths) == len(set(paths)), "a file is named twice"
    assert backward_steps(paths) == []


def test_a_roll_is_told_whole() -> None:
    rollout = ROOT / "operator" / "kvroll_operator" / "rollout"
    told = {found(name) for name in named(ROLL.read_text())}
    untold = {path for path in rollout.rglob("*.py") if path.name != "__init__.py"} - told
    assert {path.name for path in untold} == {"wall.py"}, (
        "the wall decides nothing of a roll; every other file has a place in it"
    )


def test_a_wrong_order_is_seen() -> None:
    paths = [path for name in named(ROLL.read_text()) if (path := found(name)) is not None]
    assert backward_steps(paths[::-1])
