"""What `make dist` builds, installed as a stranger would: an environment of its own, outside of the checkout, with nothing of it on
a path.
"""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from kvroll_core.release import VERSION
from tests.worker.tiny_model import TINY, write_model

pytestmark = [pytest.mark.dist, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
# A shell's background job ignores SIGINT and hands that on; whoever presses Ctrl-C has none of that.
HEEDS_CTRL_C = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from kvroll_cli.main import main; main()"
)
# Absent packages are named by what is imported.
PRESENT = "import importlib.util, sys; print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n)])"

Installed = Callable[[str], Path]


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder in which `make dist` has left one sdist and one wheel, and nothing else to install."""
    subprocess.run(["make", "dist"], cwd=ROOT, check=True)
    return ROOT / "dist"


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Makes an environment that holds the wheel with those extras, and gives the folder of its programs."""
    uv = shutil.which("uv") or str(ROOT / "build/bootstrap/bin/uv")
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    @functools.cache
    def make(extras: str) -> Path:
        folder = tmp_path_factory.mktemp("env") / "venv"
        asked = f"kvroll[{extras}] @ {wheel.as_uri()}"
        python = folder / "bin" / "python"
        for command in (
            ["venv", "--quiet", "--python", sys.executable, str(folder)],
            [
                "pip",
                "install",
                "--quiet",
                "--python",
                str(python),
                "--constraint",
                str(ROOT / "constraints.txt"),
                asked,
            ],
        ):
            subprocess.run([uv, *command], cwd=folder.parent, env=env, check=True)
        return python.parent

    return make


def clean(programs: Path, home: Path) -> dict[str, str]:
    return {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home), "NO_COLOR": "1", "KVROLL_STATE": str(home / "site")}


def said(programs: Path, home: Path, *command: str) -> str:
    """What a program of the environment prints, run in an empty folder.

    Raises:
        AssertionError: it failed, with what it said.
    """
    words = [str(programs / command[0]), *command[1:]]
    done = subprocess.run(words, cwd=home, env=clean(programs, home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_the_wheel_is_for_other_machines_too(wheel: Path) -> None:
    if sys.platform == "linux":
        assert "-manylinux_" in wheel.name


def test_the_sdist_holds_sources_and_nothing_that_was_built(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "CMakeLists.txt", "kernels/src/bind.cpp"} <= names
    assert not [n for n in names if n.startswith(("build/", ".venv", "dist/", ".git/")) or n.endswith((".so", ".pyc"))]


@pytest.mark.parametrize(
    ("extras", "module"), [("operator", "kvroll_operator.main"), ("gateway", "kvroll_gateway.main")]
)
def test_what_runs_beside_the_api_server_holds_no_arrays(
    installed: Installed, tmp_path: Path, extras: str, module: str
) -> None:
    programs = installed(extras)
    assert said(programs, tmp_path, "python", "-c", PRESENT, "torch", "numpy", "safetensors", module) == module
    said(programs, tmp_path, "python", "-c", f"import {module}")


def test_the_command_line_holds_no_torch_and_answers(installed: Installed, tmp_path: Path) -> None:
    programs = installed("operator,cli")
    assert said(programs, tmp_path, "python", "-c", PRESENT, "torch", "transformers", "kvroll_cli") == "kvroll_cli"
    assert str(programs.parent) in said(
        programs, tmp_path, "python", "-c", "import kvroll_cli; print(kvroll_cli.__file__)"
    )
    for program in ("kvroll", "kubectl-kvroll"):
        assert said(programs, tmp_path, program, "version") == VERSION
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    command = ("budget", "--model", "config.json", "-m", "1GiB", "--tokens", "1024", "-o", "json")
    # Two layers, two heads of 16 elements, K and V, two bytes each.
    assert json.loads(said(programs, tmp_path, "kvroll", *command))["kv_bytes_per_token"] == 2 * 2 * 16 * 2 * 2


def test_kvroll_up_runs_from_it_and_leaves_nothing(installed: Installed, tmp_path: Path) -> None:
    """The operator with its CRDs, the gateway, and a worker with the native kernels, each a process of that environment."""
    programs, model, log = installed("operator,cli"), write_model(tmp_path / "tiny"), tmp_path / "up.log"
    flags = ["--model", str(model), "--replicas", "1", "--port", "0", "--memory", "2GiB"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [programs / "python", "-c", HEEDS_CTRL_C, "up", *flags], cwd=tmp_path, env=clean(programs, tmp_path), stdin=subprocess.DEVNULL,
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        while " complete, http" not in (told := log.read_text()):
            assert process.poll() is None, told
            time.sleep(0.2)
        url = told.split(" complete, ")[1].split()[0]
        answer = httpx.post(
            f"{url}/completions", json={"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 4}, timeout=60
        )
        assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 4), answer.text
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0, log.read_text()
        assert not (tmp_path / "site").exists()
    finally:
        process.kill()
