"""What a text points to, a reader of this repository can open: pages, their sections, and nothing kept elsewhere."""

import re
from pathlib import Path

import pytest

from tests.core.test_guards import ROOT, project_files

TEXTS = {".py", ".md", ".proto", ".h", ".cpp", ".go", ".sh", ".yaml", ".toml"}
SELF = Path("tests/core/test_guards_citations.py")
NOT_OURS = {
    "core/kvroll_core/wall/engines.toml",  # quotes the paths of other projects' pages
    "CHANGELOG.md",  # tells of what was there then
}
OUTSIDE = {
    "a section of research notes": r"\b[MEOCA] §\s?\d",
    "a section of a design kept elsewhere": r"\bDESIGN(?:\.md)?\b(?!.*docs/design)",
    "a numbered trap or rule of notes kept elsewhere": r"\b[Tt]raps? \d|\bkopf rules? K\d|\bK\d+–K\d+",
    "an invariant by a number that no page gives it": r"\b[Ii]nvariants? I\d+|\bI\d+–I\d+|\"I\d+: ",
    "a folder beside this repository": r"\.\./shared|(?<![\w/])shared/(?:research|cases|prototypes|DESIGN)|(?<![\w/])prototypes/",
}
PAGE = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.(?:md|json|svg|py)\b")
SECTION = re.compile(r"docs/design\.md §(\d+)")
LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s#]+)(?:#([^)\s]*))?\)")


def texts() -> list[tuple[Path, str]]:
    paths = [p for p in project_files() if p.suffix in TEXTS and p != SELF and p.as_posix() not in NOT_OURS]
    return [
        (p, (ROOT / p).read_text(encoding="utf-8")) for p in paths if not p.name.endswith(("_pb2.py", "_pb2_grpc.py"))
    ]


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


@pytest.mark.parametrize("what", OUTSIDE)
def test_nothing_is_cited_that_a_reader_cannot_open(what: str) -> None:
    pattern = re.compile(OUTSIDE[what])
    found = [
        f"{p}:{line_of(text, hit.start())}: {hit.group()}" for p, text in texts() for hit in pattern.finditer(text)
    ]
    assert not found, f"{what}: write the reason itself, or bring the page in\n  " + "\n  ".join(found)


def test_every_page_that_is_named_exists() -> None:
    found = [
        f"{p}:{line_of(text, hit.start())}: {hit.group()}"
        for p, text in texts()
        for hit in PAGE.finditer(text)
        if not (ROOT / hit.group()).is_file()
    ]
    assert not found, "no such file:\n  " + "\n  ".join(found)


def test_every_section_of_the_design_that_is_named_exists() -> None:
    design = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"(?m)^## (\d+)\.", design))
    found = [
        f"{p}:{line_of(text, hit.start())}: §{hit[1]}"
        for p, text in texts()
        for hit in SECTION.finditer(text)
        if hit[1] not in sections
    ]
    assert not found, f"docs/design.md has the sections {sorted(sections)}:\n  " + "\n  ".join(found)


def test_every_link_leads_to_a_file() -> None:
    pages = [(p, text) for p, text in texts() if p.suffix == ".md"]
    found = [
        f"{p}:{line_of(text, hit.start())}: {hit[1]}"
        for p, text in pages
        for hit in LINK.finditer(text)
        if not (ROOT / p.parent / hit[1]).exists()
    ]
    assert not found, "no such file:\n  " + "\n  ".join(found)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("(M §7.5)", "a section of research notes"),
        ("DESIGN §7", "a section of a design kept elsewhere"),
        ("trap 12", "a numbered trap or rule of notes kept elsewhere"),
        ("invariant I10", "an invariant by a number that no page gives it"),
        ("../shared/x", "a folder beside this repository"),
    ],
)
def test_the_patterns_find_what_they_are_for(text: str, what: str) -> None:
    assert re.search(OUTSIDE[what], text)
