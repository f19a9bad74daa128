"""The state folder: what lies in it, who holds it, and what of it is remembered."""

import fcntl
import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvroll_local.node.identity import Identity, identify, is_alive
from kvroll_local.up.errors import UpError

_OURS = (
    "api.db", "api.db-wal", "api.db-shm", "token", "api.crt", "api.key",
    "kubeconfig", "site.json", "session.key", "agent.log", "keep-state",
)  # fmt: skip


@dataclass(frozen=True)
class SiteRecord:
    """What a later `kvroll up` of the same folder needs to know. `subnet` is the site's /24 of loopback, `datasets` the folder whose files
    a gate may read, empty for none.
    """

    subnet: str
    namespace: str
    gateway_host: str
    gateway_port: int
    datasets: str

    @property
    def gateway_url(self) -> str:
        """Where clients reach the gateway."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.gateway_host, self.gateway_host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.gateway_port}"


class StateFolder:
    """`path` is absolute: it is also the mark by which the site's processes are found."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self.kubeconfig = self.path / "kubeconfig"
        self.log = self.path / "agent.log"
        self._lock_path = self.path / "lock"
        self._lock = -1

    def acquire(self) -> None:
        """Takes the folder for this process, for as long as it lives or until `release`.

        Raises:
            UpError: another process has it, or the folder holds something that is not ours.
        """
        if self.path.is_dir() and not self.is_site and any(self.path.iterdir()):
            raise UpError(
                f"--state: expected a new, an empty or an earlier site's folder, found other files in {self.path}"
            )
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                holder = self.holder()
                who = f"pid {holder.pid}" if holder else "another process"
                raise UpError(
                    f"kvroll up runs here already: {who}, state folder {self.path}; `kvroll down --state {self.path}` ends it,"
                    " another --state makes a second site"
                ) from None
            with suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == self._lock_path.stat().st_ino:
                    break
            os.close(descriptor)  # whoever had it removed the file: ours is another by now
        self._lock = descriptor
        own = identify(os.getpid())
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(own) if own else {}).encode(), 0)

    def release(self) -> None:
        """Lets go of the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def holder(self) -> Identity | None:
        """The process that has the folder, None where none has: a lock ends with its process, however that ended."""
        try:
            with self._lock_path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return None
                except BlockingIOError:
                    found = Identity(**json.loads(file.read()))
        except (OSError, ValueError, TypeError):
            return None
        return found if is_alive(found) else None

    @property
    def is_site(self) -> bool:
        """Whether a site was begun here."""
        return self._lock_path.exists() or (self.path / "site.json").exists()

    def record(self) -> SiteRecord | None:
        """What is remembered of the site."""
        try:
            return SiteRecord(**json.loads((self.path / "site.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def remember(self, record: SiteRecord) -> None:
        """Replaces what is remembered."""
        self.write_private("site.json", json.dumps(asdict(record)).encode())

    def write_private(self, name: str, data: bytes) -> Path:
        """Writes a file that nobody else may read, at once."""
        path, draft = self.path / name, self.path / f"{name}.draft"
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        draft.replace(path)
        return path

    @property
    def keeps_state(self) -> bool:
        """Whether whoever asked for the end asked to keep the objects."""
        return (self.path / "keep-state").exists()

    def ask_to_keep(self, keep: bool) -> None:
        """Says so to the process that ends the site."""
        if keep:
            (self.path / "keep-state").touch(0o600)
        else:
            (self.path / "keep-state").unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes what a site makes, and the folder where nothing else is in it. The lock goes last."""
        shutil.rmtree(self.path / "pods", ignore_errors=True)
        for name in (*_OURS, "lock"):
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()


def default_state(environ: Any = os.environ) -> Path:
    """Where a site lies unless another folder is named."""
    base = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return Path(base) / "kvroll" / "up"
