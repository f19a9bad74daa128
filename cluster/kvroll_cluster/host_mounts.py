"""The host folders in which a Pod of `localhost/kvroll:dev` finds Python, the virtual environment and the checkout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvroll_cluster.errors import ClusterError

SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
LINKER_CACHE = "/etc/ld.so.cache"


def virtual_environment(checkout: Path, chosen: Path | None = None) -> Path:
    """The chosen environment, else the one that runs us, else the checkout's .venv.

    Raises: ClusterError when it has no bin/python.
    """
    running = Path(sys.prefix) if sys.prefix != sys.base_prefix else checkout / ".venv"
    folder = (chosen or running).absolute()
    if not (folder / "bin" / "python").exists():
        raise ClusterError(f"expected a virtual environment at {folder}, found no bin/python in it; pass --venv")
    return folder


def interpreter_prefixes(venv: Path) -> list[Path]:
    """Every folder that the environment's interpreter is reached through, links followed step by step.

    uv links a venv to `cpython-3.11-linux...`, itself a link to the patch release: programs may name either path.
    """
    found: list[Path] = []
    step = venv / "bin" / "python"
    for _ in range(40):
        found.append(step.parent.parent)
        found.append(step.parent.parent.resolve())
        if not step.is_symlink():
            break
        step = Path(os.path.normpath(step.parent / os.readlink(step)))
    configured = _home(venv / "pyvenv.cfg")
    return found + ([configured.parent, configured.parent.resolve()] if configured else [])


def _home(config: Path) -> Path | None:
    lines = config.read_text().splitlines() if config.is_file() else []
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    home = next((value.strip() for key, value in values.items() if key.strip() == "home"), None)
    return Path(home) if home else None


def mounted_paths(checkout: Path, venv: Path, more: Iterable[Path] = ()) -> list[Path]:
    """The paths to mount, each at its own place; what lies below another one is left out.

    Raises: ClusterError when one of `more` is no folder: a Pod that mounts it would wait for ever.
    """
    system = [Path(path) for path in SYSTEM_FOLDERS if Path(path).is_dir()]
    extra = [path.absolute() for path in more]
    for path in extra:
        if not path.is_dir():
            raise ClusterError(f"host-mounts --also: expected a folder, found none at {path}")
    ours = [checkout.absolute(), checkout.resolve(), venv, *interpreter_prefixes(venv), *extra]
    return system + outermost(ours, system)


def outermost(paths: Iterable[Path], covered: Iterable[Path] = ()) -> list[Path]:
    """Drops repeats and whatever lies inside another path or inside `covered`; the order stays."""
    unique = list(dict.fromkeys(paths))
    walls = [*unique, *covered]
    return [p for p in unique if not any(wall in p.parents for wall in walls) and p not in set(covered)]


def host_mounts(paths: Iterable[Path]) -> dict[str, list[dict[str, Any]]]:
    """`volumes` and `volumeMounts` of a Pod, all read-only, for folders; the linker's cache is added as a file."""
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    kinds = [(path, "Directory") for path in paths]
    if Path(LINKER_CACHE).is_file():
        kinds.append((Path(LINKER_CACHE), "File"))
    for number, (path, kind) in enumerate(kinds):
        name = f"host-{number}"
        volumes.append({"name": name, "hostPath": {"path": str(path), "type": kind}})
        mounts.append({"name": name, "mountPath": str(path), "readOnly": True})
    return {"volumes": volumes, "volumeMounts": mounts}
