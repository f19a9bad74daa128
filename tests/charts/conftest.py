"""Helm, and the objects that the charts render to."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvroll_cluster.build import cache_key
from kvroll_cluster.layout import cache_folder

ROOT = Path(__file__).parents[2]
Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


def find_helm() -> str | None:
    """The local cluster's helm if it was built (never builds it), else the one on PATH."""
    built = cache_folder(os.environ) / "cluster" / cache_key(ROOT / "cluster") / "bin" / "helm"
    return str(built) if built.exists() else shutil.which("helm")


@pytest.fixture(scope="session")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    binary = find_helm()
    if binary is None:
        pytest.skip("helm is neither on PATH nor built yet: make cluster-up builds it")

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run([binary, *arguments], input=stdin, capture_output=True, text=True, check=False, cwd=ROOT)

    return run


@pytest.fixture(scope="session")
def render(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Render:
    """`render(chart, values, release=...)`: the objects that `helm template` prints."""

    # A start of helm costs more than the rest of a test, and most tests look at the same few renderings.
    @cache
    def text(chart: str, values: str, release: str) -> str:
        done = helm("template", release, f"charts/{chart}", "-n", "demo", "-f", "-", stdin=values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(chart: str, values: dict[str, Any] | None = None, release: str = "kvroll") -> Objects:
        return [found for found in yaml.safe_load_all(text(chart, json.dumps(values or {}), release)) if found]

    return objects


def one(objects: Objects, kind: str, name: str) -> dict[str, Any]:
    """The only object of that kind and name."""
    found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    assert len(found) == 1, f"expected one {kind} {name}, found {[(o['kind'], o['metadata']['name']) for o in objects]}"
    return found[0]
