"""A JSON report of several parts: each writes its own key and keeps what the others found, however they are run."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any


class DamagedReportError(ValueError):
    """The file is there and is no JSON object."""


def merge_key(path: Path, key: str, value: Any) -> None:
    """Puts `value` under `key` of the JSON object in that file, made where there is none; the other keys stay.

    Two processes may do so at once: each waits for the other, and a reader never sees half a file.

    Raises:
        DamagedReportError: what is there is not a JSON object; it is left as it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = _read(path) | {key: value}
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DamagedReportError(f"expected a JSON object in {path}, found {error}; remove it") from error
    if not isinstance(found, dict):
        raise DamagedReportError(f"expected a JSON object in {path}, found a {type(found).__name__}; remove it")
    return found
