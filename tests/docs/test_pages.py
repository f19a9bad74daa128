"""What documents name and show beside commands: code compiles, data parses, files and headings exist."""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

from tests.docs.written import ROOT, Block, blocks, documents, prose

PAGES = documents()
BLOCKS = [block for page in PAGES for block in blocks(page)]


def of_language(*languages: str) -> pytest.MarkDecorator:
    found = [block for block in BLOCKS if block.language in languages]
    return pytest.mark.parametrize("block", found, ids=[block.place for block in found])


@of_language("python")
def test_python_compiles(block: Block) -> None:
    ast.parse(block.text)


@of_language("json")
def test_json_parses(block: Block) -> None:
    try:
        json.loads(block.text)
    except ValueError:  # JSON lines
        assert all(json.loads(line) for line in block.text.splitlines())


@of_language("yaml")
def test_yaml_parses(block: Block) -> None:
    for found in yaml.safe_load_all(block.text):
        assert found is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_named_files_exist(page: Path) -> None:
    text = "\n".join(line for _, line in prose(page))
    missing = [
        target
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]
    rooms = "bench|charts|cli|cluster|core|crds|docs|examples|gateway|kernels|local|operator|proto|tests|worker"
    named = re.findall(rf"`((?:{rooms})/[\w./-]+)`", text)
    missing += [name for name in named if not (ROOT / name).exists() and not is_placeholder(name)]
    assert not missing, f"{page.relative_to(ROOT)} names what is not there: {missing}"


def is_placeholder(name: str) -> bool:
    """A word in capitals stands for any: `tests/faults/test_PART.py`."""
    return re.search(r"(^|[/_.-])[A-Z]{2,}([/_.-]|$)", name) is not None and not name.endswith(".md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_exist(page: Path) -> None:
    text = "\n".join(line for _, line in prose(page))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", text):
        if "://" in target:
            continue
        other = (page.parent / target) if target else page
        headings = {slug(line) for _, line in prose(other) if line.startswith("#")}
        assert anchor in headings, f"{page.relative_to(ROOT)}: {target or page.name} has no heading for #{anchor}"


def slug(heading: str) -> str:
    """GitHub's anchor of a heading."""
    text = heading.lstrip("#").strip().lower().replace("`", "")
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
