import subprocess
import sys

import pytest

from kvroll_kernels import dispatch
from kvroll_kernels.errors import KernelsUnavailableError


def test_reference_is_always_there() -> None:
    assert dispatch.load("reference").name == "reference"


def test_triton_is_refused_by_name() -> None:
    with pytest.raises(KernelsUnavailableError, match="not part of this version"):
        dispatch.load("triton")


def test_absent_native_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "native_is_built", lambda: False)
    with pytest.raises(KernelsUnavailableError, match="make setup"):
        dispatch.load("native")


def test_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of native, reference, triton"):
        dispatch.load("cuda")


def test_native_when_built() -> None:
    if not dispatch.native_is_built():
        pytest.skip("the native module is not built here (make setup builds it)")
    ops = dispatch.load("native")
    assert ops.name == "native"
    assert ops.build_hash().startswith("native-")
    assert ops.build_hash() == dispatch.load("native").build_hash()


def test_the_package_imports_neither_torch_nor_native() -> None:
    code = "import sys, kvroll_kernels; sys.exit('torch' in sys.modules or 'kvroll_kernels._native' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": "kernels"}).returncode == 0
