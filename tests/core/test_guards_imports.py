"""What must import without what: every room by itself, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "operator", "gateway", "worker", "kernels", "cli", "proto")

# Makes `import NAME` fail for every name in BLOCKED, then imports PACKAGE and everything that its __init__ pulls in.
PROBE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED or name in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked by the test", name=name)
sys.meta_path.insert(0, Absent())
import importlib
importlib.import_module(PACKAGE)
"""


def probe(package: str, blocked: set[str]) -> subprocess.CompletedProcess[str]:
    path = ":".join(str(ROOT / room) for room in ROOMS)
    code = f"import sys; sys.path[:0] = {path!r}.split(':'); BLOCKED = {blocked!r}; PACKAGE = {package!r}\n{PROBE}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")


def test_the_probe_can_fail() -> None:
    done = probe("kvroll_core.precision.formats", {"dataclasses"})
    assert "dataclasses is blocked by the test" in done.stderr


def test_kernels_import_with_neither_the_native_module_nor_triton() -> None:
    done = probe("kvroll_kernels", {"kvroll_kernels._native", "triton"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "package", ["kvroll_core", "kvroll_core.precision.formats", "kvroll_core.compat", "kvroll_core.epoch", "kvroll.v1"]
)
def test_the_shared_packages_import_without_any_runtime(package: str) -> None:
    done = probe(package, {"torch", "grpc", "kopf", "kubernetes", "numpy", "triton", "starlette"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "package", ["kvroll_operator", "kvroll_operator.main", "kvroll_gateway", "kvroll_gateway.main"]
)
@pytest.mark.slow
def test_operator_and_gateway_import_without_torch(package: str) -> None:
    done = probe(package, {"torch", "numpy", "safetensors", "tokenizers", "gguf", "triton"})
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("package", ["kvroll_worker.main", "kvroll_worker.engine.engine", "kvroll_cli.main"])
def test_a_worker_starts_without_torch(package: str) -> None:
    """It took two thirds of a start's CPU time, and starts are most of a roll."""
    done = probe(package, {"torch", "transformers", "triton"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "package", ["kvroll_core", "kvroll_kernels", "kvroll_operator", "kvroll_gateway", "kvroll_worker", "kvroll_cli"]
)
def test_the_editable_install_brings_every_room(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import {package}"], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, f"run make setup; {package} is not importable outside the checkout:\n{done.stderr}"
