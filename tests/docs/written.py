"""What is written to be typed: commands and code in documents, chart notes and our own messages. Pure."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = ("kvroll", "kubectl", "make", "helm")
_PROGRAMS = (*OURS, "pip", "python", "python3", "curl", "git", ".ci/run", "pytest")
_SHELL = {"", "console", "bash", "sh", "text"}
_FENCE = re.compile(r"^\s*```(\w*)\s*$")
_INLINE = re.compile(r"`([^`]+)`")
_MESSAGE = re.compile(r"`((?:" + "|".join(OURS) + r")(?: [^`]*)?)`")
_HINT = re.compile("`(?:" + "|".join(OURS) + ")|helm|kubectl")
_BREAKS = {"|", "||", "&&", ";", "&"}


@dataclass(frozen=True)
class Written:
    """One command as an argument list, and where it stands."""

    place: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {' '.join(self.words)}"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    place: str
    language: str
    text: str


def documents() -> list[Path]:
    """Every document for users and contributors. `docs/design.md` says what shall be, not what is."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("*/README.md"), *ROOT.glob("charts/*/README.md")]
    found += [path for path in (ROOT / "docs").rglob("*.md") if path.name != "design.md"]
    return sorted(set(found))


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a document."""
    found: list[Block] = []
    opened: tuple[int, str, list[str]] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened = (number, fence[1], [])
        elif opened is not None and line.strip() == "```":
            found.append(Block(f"{path.relative_to(ROOT)}:{opened[0]}", opened[1], "\n".join(opened[2])))
            opened = None
        elif opened is not None:
            opened[2].append(line)
    assert opened is None, f"{path}: the block of line {opened and opened[0]} is not closed"
    return found


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines outside of blocks."""
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def commands_in(path: Path) -> list[Written]:
    """The commands of a document: in its blocks, and as code in its sentences."""
    found = [command for block in blocks(path) for command in commands_of_block(block)]
    for number, line in prose(path):
        for code in _INLINE.findall(line):
            if code.split()[0] in _PROGRAMS and (" " in code or code in (".ci/run", "make")):
                found += split(f"{path.relative_to(ROOT)}:{number}", code)
    return found


def commands_of_block(block: Block) -> list[Written]:
    """Where a line begins with `$ ` those lines are the commands and the others output; else every line that begins with a program."""
    if block.language not in _SHELL:
        return []
    lines = block.text.replace("\\\n", " ").splitlines()
    prompted = [line[2:] for line in lines if line.startswith("$ ")]
    typed = prompted or [line for line in lines if line.split() and line.split()[0] in _PROGRAMS and "──" not in line]
    return [command for line in typed for command in split(block.place, line)]


def split(place: str, line: str) -> list[Written]:
    """The commands of a shell line, without their environment; a quote that is closed on a later line takes the rest."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words = line.split()
    found: list[list[str]] = []
    now: list[str] = []
    for word in [*words, ";"]:
        if word in _BREAKS:
            found.append(now)
            now = []
        elif now or not re.fullmatch(r"[A-Z_]+=.*", word):
            now.append(word)
    return [Written(place, tuple(command)) for command in found if command]


def notes() -> list[Written]:
    """The commands that `helm install` prints: in the notes and, as code, in the templates' own failures."""
    found = []
    for path in sorted(path for path in ROOT.glob("charts/*/templates/**/*") if path.is_file()):
        text = re.sub(r"{{-?.*?-?}}", "x", path.read_text(encoding="utf-8"))
        place = str(path.relative_to(ROOT))
        if path.name == "NOTES.txt":
            for line in text.splitlines():
                typed = re.search(r"(?:^\s+|: )((?:kubectl|helm|kvroll|make) .*)", line)
                found += split(place, typed[1]) if typed else []
        found += [command for code in _MESSAGE.findall(text) for command in split(place, code)]
    return found


def messages() -> list[Written]:
    """The commands in strings of our own code, help and errors alike: those in backticks, and every `helm install` and `kubectl kvroll`."""
    found = []
    for room in (
        "core",
        "operator",
        "gateway",
        "worker",
        "kernels",
        "cli",
        "cluster",
        "local",
        "bench",
        "docs",
        "proto",
    ):
        for path in sorted((ROOT / room).rglob("*.py")):
            place = str(path.relative_to(ROOT))
            for text in _strings(path):
                named = [
                    *_MESSAGE.findall(text),
                    *re.findall(r"(?<!`)\b((?:helm install|kubectl kvroll) [^`;,)\n]+)", text),
                ]
                found += [command for code in named for command in split(place, code)]
    return found


def _strings(path: Path) -> list[str]:
    """The strings of a module; what an f-string fills in stands as X."""
    found: list[str] = []
    parts: set[int] = set()
    source = path.read_text(encoding="utf-8")
    if not _HINT.search(source):
        return found  # parsing every module takes seconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(value) for value in node.values}
            found.append("".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            found.append(node.value)
    return found
