"""How large things may be: a file, a folder, a class, a function, and what a base class is for.

Each limit has the rooms that are not there yet, with how far they are: lower a number or take its line away, never raise one.
"""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.core.test_guards import PACKAGE_ROOMS, ROOT, SOURCE_SUFFIXES, sources

pytestmark = pytest.mark.slow

MOST_FILE = 400
"""Lines of code: no blanks, no comments, no docstrings."""
MOST_FOLDER = 14
"""Modules of a folder of a product package. Folders of tests mirror the rooms, and nobody reads one from end to end: no limit there."""
MOST_PUBLIC_METHODS = 20
MOST_FUNCTION = 40
"""Lines of code of a function's body."""

LARGER_FILES: dict[str, int] = {}
LARGER_FOLDERS = {
    "cluster/kvroll_cluster": 19,
    "local/kvroll_local/node": 16,
    "operator/kvroll_operator/api": 18,
}
LARGER_CLASSES = {
    "kernels/kvroll_kernels/ops.py:Ops": 21,  # one signature of every kernel, which each implementation has whole
    "operator/kvroll_operator/rollout/facts/view.py:Seen": 38,
    "worker/kvroll_worker/engine/engine.py:Engine": 21,
    "worker/kvroll_worker/port.py:EnginePort": 22,
}
LARGER_FUNCTIONS = {
    # Tables: a line a flag, a line a metric, a line a family.
    "core/kvroll_core/budget/families/table.py:_families": 62,
    "gateway/kvroll_gateway/main.py:parse_args": 65,
    "gateway/kvroll_gateway/metrics.py:__init__": 62,
    "operator/kvroll_operator/metrics.py:__init__": 64,
    "worker/kvroll_worker/config.py:_parser": 70,
    "cli/kvroll_cli/commands/budget/view.py:document": 51,
    "operator/kvroll_operator/rollout/facts/desired.py:desired_from": 41,
}
HOOKS = {"VerbGroup"}
"""Bases that a framework wants extended by whoever has something to tell it."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@cache
def code_lines(path: Path) -> frozenset[int]:
    """The numbers of the lines that have code; of other languages, that are neither blank nor a comment of one line."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix != ".py":
        comment = re.compile(r"\s*(//|#|\*|/\*|$)")
        return frozenset(n for n, line in enumerate(text.splitlines(), 1) if not comment.match(line))
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            used.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            used.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(used)


def product_modules() -> list[Path]:
    return [path for path in sources(".py") if path.parts[0] in PACKAGE_ROOMS]


def functions() -> Iterator[tuple[str, int]]:
    for path in product_modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, Function):
                body = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
                yield f"{path.as_posix()}:{node.name}", len(code_lines(path) & set(body))


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in product_modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                yield path, node


def public_methods(node: ast.ClassDef) -> int:
    return len({m.name for m in node.body if isinstance(m, Function) and not m.name.startswith("_")})


def check(sizes: Mapping[str, int], most: int, larger: Mapping[str, int], what: str) -> None:
    """Raises with all offenders, and with exceptions that nothing needs any more."""
    over = [
        f"{name}: {size}, at most {larger.get(name, most)}"
        for name, size in sizes.items()
        if size > larger.get(name, most)
    ]
    assert not over, f"{what}:\n  " + "\n  ".join(sorted(over))
    stale = sorted(name for name in larger if sizes.get(name, 0) <= most)
    assert not stale, f"within the limit of {most} now, take them off the list in {Path(__file__).name}: {stale}"


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    sizes = {path.as_posix(): len(code_lines(path)) for path in sources(*SOURCE_SUFFIXES)}
    check(sizes, MOST_FILE, LARGER_FILES, "lines of code; split by noun where there are two of them")


def test_no_folder_has_more_files_than_a_reader_can_hold() -> None:
    sizes = Counter(path.parent.as_posix() for path in product_modules() if path.name != "__init__.py")
    check(
        sizes, MOST_FOLDER, LARGER_FOLDERS, "modules in a folder; give what belongs together a folder with a docstring"
    )


def test_no_class_has_more_doors_than_a_reader_can_hold() -> None:
    sizes = {f"{path.as_posix()}:{node.name}": public_methods(node) for path, node in classes()}
    check(sizes, MOST_PUBLIC_METHODS, LARGER_CLASSES, "public methods; cut the class at a seam")


def test_no_function_is_longer_than_a_screen() -> None:
    sizes: dict[str, int] = {}
    for name, size in functions():
        sizes[name] = max(size, sizes.get(name, 0))
    check(sizes, MOST_FUNCTION, LARGER_FUNCTIONS, "lines of code in a function")


def imported() -> dict[str, set[Path]]:
    """Whoever imports a name from a module, by `module:name`."""
    found: dict[str, set[Path]] = defaultdict(set)
    for path in sources(".py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[f"{node.module}:{alias.name}"].add(path)
    return found


def test_no_base_class_only_keeps_a_file_short() -> None:
    """A base that one class extends, from another file of its folder, and that no other file imports is the other half of that class."""
    extended: dict[tuple[Path, str], list[str]] = defaultdict(list)
    for path, node in classes():
        for base in node.bases:
            if isinstance(base, ast.Name):
                extended[path, base.id].append(node.name)
    importers, halves = imported(), []
    for path, node in classes():
        users = importers[f"{'.'.join(path.with_suffix('').parts[1:])}:{node.name}"]
        if len(users) == 1 and node.name not in HOOKS:
            [user] = users
            if user.parent == path.parent and len(extended[user, node.name]) == 1:
                halves.append(f"{path}: {node.name}, extended in {user}")
    assert not halves, "join these two, or cut them at a seam that others can name:\n  " + "\n  ".join(halves)


@pytest.mark.parametrize("blank", ["", "# why", '"""Words."""', '"""Words\nand more."""'])
def test_only_code_counts(tmp_path: Path, blank: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"{blank}\nx = (\n    1\n)\n")
    assert len(code_lines(file)) == 3
