"""`kvroll down`: ends a site from outside, whether its `kvroll up` still lives or was killed."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroll_local.node.environment import CONTAINER_MARK, STATE_MARK
from kvroll_local.node.identity import identify, is_alive, marked
from kvroll_local.up.errors import UpError
from kvroll_local.up.folder import StateFolder

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Ended:
    """What there was: the `kvroll up` that was told, and how many orphans of a killed one."""

    state: Path
    told_pid: int | None
    num_orphans: int
    is_kept: bool

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {"state": str(self.state), "toldPid": self.told_pid, "orphans": self.num_orphans, "kept": self.is_kept}

    def __str__(self) -> str:
        if self.told_pid is None and not self.num_orphans:
            return f"nothing runs in {self.state}"
        orphans = f"{self.num_orphans} processes of a killed `kvroll up`"
        who = " and ".join(
            [f"kvroll up (pid {self.told_pid})"] * bool(self.told_pid) + [orphans] * bool(self.num_orphans)
        )
        return (
            f"ended {who} in {self.state}; {'its pools and logs are kept' if self.is_kept else 'nothing is left of it'}"
        )


def end(folder: StateFolder, *, keep_state: bool, grace_seconds: float, timeout_seconds: float) -> Ended:
    """Ends every process of the site and, unless told otherwise, removes its files.

    Raises:
        UpError: its `kvroll up` did not end in time, or the folder is no site's.
    """
    if not folder.path.is_dir():
        return Ended(folder.path, None, end_processes(folder, grace_seconds), False)
    if not folder.is_site:
        raise UpError(f"--state: expected a site's folder, found none at {folder.path}")
    holder = folder.holder()
    if holder is not None:
        folder.ask_to_keep(keep_state)
        with suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_seconds
        while folder.holder() is not None or is_alive(holder):
            if time.monotonic() > deadline:
                raise UpError(f"kvroll up (pid {holder.pid}) did not end within {timeout_seconds:g} s; it was told to")
            time.sleep(_POLL_SECONDS)
        return Ended(folder.path, holder.pid, end_processes(folder, grace_seconds), keep_state)
    folder.acquire()
    num_orphans = end_processes(folder, grace_seconds)
    if not keep_state:
        folder.clear()
    folder.release()
    return Ended(folder.path, None, num_orphans, keep_state)


def end_processes(folder: StateFolder, grace_seconds: float) -> int:
    """SIGTERM and, after the grace, SIGKILL to every process that carries the folder's mark; returns how many there were."""
    value = str(folder.path)
    found = {
        identity for pid, env in marked(STATE_MARK, value) if CONTAINER_MARK in env and (identity := identify(pid))
    }
    for identity in found:
        if is_alive(identity):
            with suppress(ProcessLookupError):
                os.kill(identity.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while any(is_alive(identity) for identity in found) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for identity in found:
        if is_alive(identity):
            with suppress(ProcessLookupError):
                os.kill(identity.pid, signal.SIGKILL)
    while any(is_alive(identity) for identity in found):
        time.sleep(_POLL_SECONDS)
    return len(found)
