"""A folder in the user's cache that appears whole or not at all, and is checked against its own manifest before it is used."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MANIFEST = "kvroll-manifest.json"


def cache_dir() -> Path:
    """`$KVROLL_CACHE`, else `$XDG_CACHE_HOME/kvroll`, else `~/.cache/kvroll`."""
    if explicit := os.environ.get("KVROLL_CACHE"):
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kvroll"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_intact(folder: Path, source: str) -> bool:
    """True if the folder was made from `source` and every file still has the hash that its manifest names."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        files = manifest["files"].items()
        return manifest["source"] == source and all(sha256_of(folder / name) == digest for name, digest in files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


@contextmanager
def atomic_folder(folder: Path, source: str) -> Iterator[Path]:
    """Gives a temporary folder beside `folder`; on success its manifest is written and it takes that name, on failure it is removed.

    Two makers may race: the last rename wins, and both contents are whole.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield temporary
        files = {path.name: sha256_of(path) for path in sorted(temporary.iterdir())}
        (temporary / MANIFEST).write_text(json.dumps({"source": source, "files": files}, indent=2) + "\n")
        temporary.chmod(0o755)
        for path in temporary.iterdir():
            path.chmod(0o644)
        _take_place(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _take_place(temporary: Path, folder: Path) -> None:
    # rename() does not replace a folder that has files: move the old one aside first.
    if folder.exists():
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
        folder.rename(aside / folder.name)
        temporary.rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        temporary.rename(folder)
