"""Builds the Go binaries once into the cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvroll_cluster.errors import ClusterError

KUBERNETES_VERSION = "1.37.2"
HELM_VERSION = "4.3.1"
PROGRAM = "kvroll-cluster"
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
    "coredns",
    "helm",
)
LINE_SECONDS = 15.0


def cache_key(module: Path) -> str:
    """The hash of go.mod, go.sum and every Go source of the module, names included: 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted([module / "go.mod", module / "go.sum", *module.rglob("*.go")]):
        digest.update(f"{path.relative_to(module).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def ensure_binaries(module: Path, cache: Path) -> Path:
    """Returns the folder with a symlink for every component, building it first where it is absent.

    Two callers build once: the second waits for the first. The folder appears by one rename, complete or not at all.

    Raises: ClusterError without Go or when the build fails.
    """
    root = cache / "cluster" / cache_key(module)
    if (root / "bin" / PROGRAM).is_file():
        return root / "bin"
    root.parent.mkdir(parents=True, exist_ok=True)
    with locked(root.parent / f"{root.name}.lock"):
        if not (root / "bin" / PROGRAM).is_file():
            _build_into(root, module)
    return root / "bin"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file, and says so when it must wait; the kernel frees it when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another run that holds {path}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_into(root: Path, module: Path) -> None:
    if shutil.which("go") is None:
        raise ClusterError(
            "expected `go` (1.26 or newer) on PATH to build the local Kubernetes once, found none; install Go, "
            "or set KUBECONFIG to use a cluster of your own"
        )
    work = root.parent / f".{root.name}.{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    (work / "bin").mkdir(parents=True)
    try:
        _go_build(module, ".", work / "bin" / PROGRAM)
        _go_build(module, "./pause", work / "bin" / "pause")
        for component in COMPONENTS:
            (work / "bin" / component).symlink_to(PROGRAM)
        shutil.rmtree(root, ignore_errors=True)
        work.rename(root)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def version_flags() -> str:
    """The linker flags: stripped, and the version stamped, without which version-skew checks fail."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    stamps = {"gitVersion": f"v{KUBERNETES_VERSION}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items()]
    return " ".join(["-s", "-w", *flags, f"-X helm.sh/helm/v4/internal/version.version=v{HELM_VERSION}"])


def _go_build(module: Path, package: str, output: Path) -> None:
    command = ["nice", "-n", "5", "go", "build", "-v", "-mod=readonly", "-trimpath", "-ldflags", version_flags()]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    process = subprocess.Popen(
        [*command, "-o", str(output), package],
        cwd=module,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    progress = Progress("building the local Kubernetes (once; 10 to 15 minutes on two cores)")
    thread = threading.Thread(target=progress.show_until_done, daemon=True)
    thread.start()
    assert process.stderr is not None
    for line in process.stderr:
        progress.add(line.rstrip())
    code = process.wait()
    progress.finish()
    thread.join()
    if code != 0:
        shown = "\n  ".join(progress.messages[-20:])
        raise ClusterError(f"`go build {package}` in {module} ended with {code}:\n  {shown}")


class Progress:
    """One line that is rewritten on a terminal, a line every 15 seconds elsewhere."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.packages = 0
        self.messages: list[str] = []
        self._done = threading.Event()
        self._started_s = time.monotonic()

    def add(self, line: str) -> None:
        """Counts what `go build -v` prints: a package path is one word, all else is a message."""
        if line and " " not in line and not line.startswith("#"):
            self.packages += 1
        else:
            self.messages.append(line)

    def line(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started_s), 60)
        return f"{self.title}: {minutes}m{seconds:02d}s, {self.packages} packages compiled"

    def show_until_done(self) -> None:
        terminal = sys.stderr.isatty()
        while not self._done.wait(1.0 if terminal else LINE_SECONDS):
            print(f"\r{self.line()}" if terminal else self.line(), end="" if terminal else "\n", file=sys.stderr)
            sys.stderr.flush()
        if terminal:
            print(f"\r{self.line()}", file=sys.stderr)

    def finish(self) -> None:
        self._done.set()
