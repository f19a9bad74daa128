"""The descriptor names what decides the bits: the path that the kernels and numpy take, and not what the chip is called."""

import builtins
import io
from pathlib import Path
from typing import Any

import pytest

from kvroll_core.compat import Descriptor, MovePolicy, verdict
from kvroll_core.words import VerdictKind
from kvroll_kernels.native.ops import NativeOps
from kvroll_worker.engine import machine
from kvroll_worker.engine.config import describe
from kvroll_worker.models.spec import load_spec
from kvroll_worker.models.tokenizer import Tokenizer
from tests.doubles.engine_settings import engine_config
from tests.worker.tiny_model import MakeModel

CPUINFO = "model name : {name}\nflags : fpu sse2 avx2 fma f16c {more}\n"
CPUS = {"old": ("Some CPU @ 2.0GHz", ""), "new": ("Another CPU, 96 cores", "avx512f avx512bw avx512_bf16 amx_tile")}


def descriptor_on(cpu: str, isa: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Descriptor:
    """As on a machine with that /proc/cpuinfo."""
    name, more = CPUS[cpu]
    text, read, opened = CPUINFO.format(name=name, more=more), Path.read_text, builtins.open

    def read_text(path: Path, *args: Any, **kwargs: Any) -> str:
        return text if str(path) == "/proc/cpuinfo" else read(path, *args, **kwargs)

    def open_file(file: Any, *args: Any, **kwargs: Any) -> Any:
        return io.StringIO(text) if str(file) == "/proc/cpuinfo" else opened(file, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", read_text)
        patch.setattr(builtins, "open", open_file)
        patch.setattr("platform.processor", lambda: name)
        config = engine_config(folder, threads=1)
        spec = load_spec(folder)
        return describe(config, spec, Tokenizer(folder, spec), NativeOps(isa=isa), 256)


def kind(source: Descriptor, target: Descriptor) -> VerdictKind:
    return verdict(source, target, MovePolicy(frozenset({VerdictKind.EXACT, VerdictKind.CONVERT}))).kind


def test_two_cpus_of_one_path_are_exact(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (descriptor_on(cpu, "plain", make_model(), monkeypatch) for cpu in CPUS)
    assert one == other
    assert kind(one, other) is VerdictKind.EXACT
    assert (one.cpu_isa, one.compute_capability, one.driver) == ("plain", "", "")
    assert one.device_name.startswith("cpu ")


def test_another_path_of_kernels_or_numpy_or_another_libm_is_not(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = descriptor_on("old", "plain", make_model(), monkeypatch)
    try:
        wide = descriptor_on("old", "avx2", make_model(), monkeypatch)
    except ValueError:
        pytest.skip("this CPU has no AVX2")
    assert kind(here, wide) is VerdictKind.CONVERT
    assert wide.cpu_isa == "avx2"
    loops = {"exp": {"ff": {"current": "X86_V9"}, "ee": {"current": "half"}}}
    monkeypatch.setattr(machine, "opt_func_info", lambda **_: loops)
    assert " X86_V9, " in machine.math_runtime()
    assert kind(here, descriptor_on("old", "plain", make_model(), monkeypatch)) is VerdictKind.CONVERT
    monkeypatch.undo()
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "9.9"))
    assert machine.math_runtime().endswith(", glibc 9.9")
    assert kind(here, descriptor_on("old", "plain", make_model(), monkeypatch)) is VerdictKind.CONVERT
