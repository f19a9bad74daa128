"""The house's own rules, checked over every tracked and every new file: each message says why the rule is there."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOM_FOLDERS = (
    "core",
    "operator",
    "gateway",
    "worker",
    "kernels",
    "proto",
    "cli",
    "local",
    "cluster",
    "bench",
    "docs",
    "tests",
)
PACKAGE_ROOMS = ("core", "operator", "gateway", "worker", "kernels", "cli", "local", "cluster", "bench")
SOURCE_SUFFIXES = (".py", ".cpp", ".h", ".go", ".sh", ".proto")
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that git tracks or would add, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout (a source archive): the guards need git's list of files")
    return tuple(Path(name) for name in sorted(set(listed.stdout.splitlines())) if (ROOT / name).is_file())


def sources(*suffixes: str) -> list[Path]:
    return [path for path in project_files() if path.suffix in suffixes and not GENERATED.search(path.name)]


def test_git_lists_the_files_of_this_checkout() -> None:
    assert Path("pyproject.toml") in project_files()
    assert Path("tests/core/test_guards.py") in project_files()


@pytest.mark.parametrize("room", ROOM_FOLDERS)
def test_room_folders_are_not_packages(room: str) -> None:
    found = [path for path in project_files() if path.name == "__init__.py" and path.parent.parts == (room,)]
    assert not found, (
        f"remove {found[0]}: room folders are never packages. An importable `operator` replaces the standard library's module of that name "
        "and Python dies before it runs a line of ours; the other rooms follow the same rule so that nobody has to remember which."
    )


def test_the_standard_library_still_owns_operator() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "json.tool"], input="{}", cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"a plain standard library module fails when started from the checkout:\n{done.stderr}"


def test_every_package_says_what_lives_there() -> None:
    packages = [
        path for path in sources(".py") if path.name == "__init__.py" and path.parts[0] in (*PACKAGE_ROOMS, "proto")
    ]
    assert packages
    silent = [
        str(path) for path in packages if not ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    ]
    assert not silent, (
        f"each package's docstring says what lives there, what may not and who may import it; missing in {silent}"
    )


@pytest.mark.parametrize("room", PACKAGE_ROOMS)
def test_every_folder_of_modules_in_a_package_is_a_package(room: str) -> None:
    folders = {path.parent for path in sources(".py") if path.parts[0] == room and len(path.parts) > 2}
    missing = sorted(str(folder) for folder in folders if not (ROOT / folder / "__init__.py").is_file())
    assert not missing, f"folders with modules but no __init__.py are left out of mypy and the wheel: {missing}"


def test_no_file_is_named_for_what_is_left_over() -> None:
    leftover = re.compile(r"^(utils?|helpers?|commons?|misc|stuff)$")
    wire_messages_shared_by_services = Path("proto/kvroll/v1/common.proto")
    found = [p for p in sources(*SOURCE_SUFFIXES) if any(leftover.match(part) for part in (*p.parts[:-1], p.stem))]
    found = [p for p in found if p != wire_messages_shared_by_services]
    assert not found, f"name a file by its noun; a function without a room stays private beside its only user: {found}"


def test_no_file_names_a_registry_or_somebodys_machine() -> None:
    # Assembled from parts so that this file does not find itself. A home of nobody, `~me`, may stand in an example.
    registries = [
        "pypi" + ".org",
        "pythonhosted" + ".org",
        "registry.npmjs" + ".org",
        "proxy.golang" + ".org",
        "crates" + ".io",
    ]
    places = ["/" + "home/", "/" + "root/", "/" + "Users/", "/" + "work/"]
    pattern = re.compile(
        "|".join([*map(re.escape, registries), *(rf"(?<![\w.}}$*-]){re.escape(place)}(?!me\b)\w" for place in places)])
    )
    found = []
    for path in project_files():
        if path.suffix in {".binpb", ".png", ".sum"}:
            continue
        text = (ROOT / path).read_text(encoding="utf-8", errors="replace")
        found += [f"{path}:{text.count(chr(10), 0, hit.start()) + 1}: {hit.group()}" for hit in pattern.finditer(text)]
    assert not found, (
        "a checkout must build anywhere, through whatever registry mirror is configured:\n  " + "\n  ".join(found)
    )
