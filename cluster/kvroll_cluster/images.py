"""Images without a registry: writes docker archives and imports them into both nodes."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvroll_cluster.errors import ClusterError
from kvroll_cluster.layout import Node

PAUSE_IMAGE = "localhost/kvroll-pause:1"
HOST_IMAGE = "localhost/kvroll:dev"

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# The mount points of host_mounts, and what programs expect to find. /tmp is for everyone, with the sticky bit.
FOLDERS = (
    *("usr", "lib", "lib64", "bin", "sbin", "etc", "root", "home", "proc", "sys", "dev", "run", "mnt", "opt"),
    *("var", "var/tmp", "tmp", "work"),
)
STICKY = {"tmp": 0o1777, "var/tmp": 0o1777}
FILES = {
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/sh\nkvroll:x:65532:65532:kvroll:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n"
    ),
    "etc/group": "root:x:0:\nkvroll:x:65532:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


@dataclass(frozen=True)
class Entry:
    """One path of a root file system: a folder when `content` is None."""

    path: str
    mode: int
    content: bytes | None = None


def host_entries() -> list[Entry]:
    """The root of the image whose programs all come from the host by mounts."""
    folders = [Entry(path, STICKY.get(path, 0o755)) for path in FOLDERS]
    return folders + [Entry(path, 0o644, text.encode()) for path, text in FILES.items()]


def pause_entries(binary: bytes) -> list[Entry]:
    return [Entry("pause", 0o755, binary)]


def archive(reference: str, entries: Iterable[Entry], config: dict[str, object]) -> bytes:
    """A docker archive of one layer, the same bytes for the same content.

    `config` is the image's `config` object (Env, Cmd, Entrypoint, WorkingDir).
    """
    layer = _tar(entries)
    image = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "kvroll_cluster"}],
    }
    blob = json.dumps(image, sort_keys=True).encode()
    name = f"{hashlib.sha256(blob).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]
    index = json.dumps(manifest).encode()
    return _tar([Entry(name, 0o644, blob), Entry("layer.tar", 0o644, layer), Entry("manifest.json", 0o644, index)])


def _tar(entries: Iterable[Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            member = tarfile.TarInfo(entry.path)
            member.mode = entry.mode
            if entry.content is None:
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
            else:
                member.size = len(entry.content)
                tar.addfile(member, io.BytesIO(entry.content))
    return buffer.getvalue()


def write_archives(folder: Path, pause_binary: Path) -> list[Path]:
    """Writes both images' archives and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pause = archive(PAUSE_IMAGE, pause_entries(pause_binary.read_bytes()), {"Entrypoint": ["/pause"]})
    environment = ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"]
    host = archive(HOST_IMAGE, host_entries(), {"Env": environment, "Cmd": ["/bin/sh"], "WorkingDir": "/"})
    paths = [folder / "pause.tar", folder / "kvroll.tar"]
    for path, content in zip(paths, (pause, host), strict=True):
        path.write_bytes(content)
    return paths


def import_archives(node: Node, paths: Iterable[Path]) -> None:
    """Imports archives into one node's containerd.

    Raises: ClusterError with ctr's words when an import fails.
    """
    for path in paths:
        command = ["ctr", "-a", str(node.containerd_socket), "-n", "k8s.io", "images", "import", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise ClusterError(
                f"importing {path} into {node.name} failed: {done.stderr.strip() or done.stdout.strip()}"
            )
