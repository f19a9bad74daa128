"""Containers' output: the present run and the one before, neither larger than a bound. `pods/NAME/log` reads the same files."""

import os
import shutil
from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 16 << 20
_PRESENT, _PREVIOUS, _ROTATED = ".log", ".previous.log", ".log.1"


def opened(folder: Path, container: str) -> BinaryIO:
    """The file of a run that begins; the run before is kept beside it. Append only, so that a cut-off file goes on at its start."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{container}{_PRESENT}"
    if path.exists():
        path.replace(folder / f"{container}{_PREVIOUS}")
        (folder / f"{container}{_ROTATED}").unlink(missing_ok=True)
    return path.open("ab")


def tail(folder: Path, container: str, num_lines: int = 80, num_bytes: int = 2048) -> str:
    """The last words of the present run, as a termination message shows them."""
    try:
        with (folder / f"{container}{_PRESENT}").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - num_bytes))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-num_lines:])


def rotate(folder: Path, max_bytes: int = MAX_BYTES) -> None:
    """Copies what grew too large aside and empties the file under its writer.

    Lines written between the copy and the cut are lost; a pipe through the agent would stop its writer whenever the agent dies.
    """
    for path in folder.glob(f"*{_PRESENT}"):
        if not path.name.endswith(_PREVIOUS) and path.stat().st_size > max_bytes:
            shutil.copyfile(path, path.with_name(path.name.removesuffix(_PRESENT) + _ROTATED))
            os.truncate(path, 0)
