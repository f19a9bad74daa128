"""The cluster's cgroups: every process of it is in one, so none is ever lost sight of."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def hierarchies(root: Path = ROOT) -> list[Path]:
    """The mount points to make folders in: each v1 controller and, where there is one, the unified tree."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return sorted(folder for folder in root.iterdir() if folder.is_dir() and (folder / "cgroup.procs").exists())


def tracking_folder(name: str, root: Path = ROOT) -> Path:
    """The cgroup that holds the components themselves; `pids` on v1, because it limits nothing by itself."""
    folders = {folder.name: folder for folder in hierarchies(root)}
    return folders.get("pids", hierarchies(root)[0]) / name


def create(name: str, nodes: list[str], root: Path = ROOT) -> None:
    """Makes the folders of the components (`system`) and, in every hierarchy, those of the nodes."""
    (tracking_folder(name, root) / "system").mkdir(parents=True, exist_ok=True)
    for hierarchy in hierarchies(root):
        _delegate(hierarchy)
        (hierarchy / name).mkdir(exist_ok=True)
        _delegate(hierarchy / name)
        for node in nodes:
            (hierarchy / node).mkdir(exist_ok=True)


def _delegate(folder: Path) -> None:
    """On the unified tree, hands the controllers on to the children; v1 has no such file."""
    control = folder / "cgroup.subtree_control"
    if not control.exists() or not (ROOT / "cgroup.controllers").exists():
        return
    for controller in (folder / "cgroup.controllers").read_text().split():
        with suppress(OSError):
            control.write_text(f"+{controller}")


def process_ids(name: str, root: Path = ROOT) -> set[int]:
    """Every pid below the cluster's cgroup, in any hierarchy."""
    found: set[int] = set()
    for hierarchy in hierarchies(root):
        for procs in (hierarchy / name).rglob("cgroup.procs"):
            with suppress(OSError):
                found.update(int(line) for line in procs.read_text().split())
    return found


def remaining(name: str, root: Path = ROOT) -> list[Path]:
    """The cluster's cgroup folders that are still there."""
    return [hierarchy / name for hierarchy in hierarchies(root) if (hierarchy / name).exists()]


def remove(name: str, wait_s: float = 5.0, root: Path = ROOT) -> list[Path]:
    """Removes the empty tree, deepest first; the kernel needs a moment after the last process. Returns what stayed."""
    deadline_s = time.monotonic() + wait_s
    while True:
        for top in remaining(name, root):
            for folder in sorted((p for p in top.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
                with suppress(OSError):
                    folder.rmdir()
            with suppress(OSError):
                top.rmdir()
        left = remaining(name, root)
        if not left or time.monotonic() > deadline_s:
            return left
        time.sleep(0.1)
