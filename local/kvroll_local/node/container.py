"""One container's process: started, adopted after our own death, ended; and what it was before."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvroll_local.node import logs
from kvroll_local.node.backoff import RestartBackoff, restarts
from kvroll_local.node.environment import CONTAINER_MARK
from kvroll_local.node.identity import Identity, identify, is_alive, marked
from kvroll_local.node.status import container_status

Json = dict[str, Any]
UNKNOWN_EXIT = 137
"""An adopted process is another's child: the kernel tells its exit code to nobody here."""
_UNKNOWN = "ContainerStatusUnknown"
_UNKNOWN_MESSAGE = "nobody knows its exit code: the agent that started it died first"


def now() -> str:
    """The time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Container:
    """`changed` is called whenever the process ended. The record on disk is written before anything depends on it."""

    def __init__(self, spec: Mapping[str, Any], folder: Path, policy: str, changed: Callable[[], None]) -> None:
        self.spec, self.folder = spec, folder
        self.name = str(spec["name"])
        self.ready_found = self.startup_found = False  # by its probes, of the present process
        self.restarts = 0
        self.last: Json | None = None
        self.problem: Json | None = None
        self.identity: Identity | None = None
        self._policy, self._changed = policy, changed
        self._child: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._started_at, self._began = "", 0.0
        self._backoff, self._waits_seconds, self._due = RestartBackoff(), 0.0, 0.0

    @property
    def is_running(self) -> bool:
        """Whether its process lives, as far as we were told."""
        return self.identity is not None

    @property
    def is_over(self) -> bool:
        """It ended and will not be started again."""
        return (
            self.identity is None and self.last is not None and not restarts(self._policy, int(self.last["exitCode"]))
        )

    @property
    def has_started(self) -> bool:
        """It runs, and its start-up probe, if it has one, was content."""
        return self.is_running and (self.startup_found or "startupProbe" not in self.spec)

    @property
    def is_ready(self) -> bool:
        """It has started, and its readiness probe, if it has one, is content."""
        return self.has_started and (self.ready_found or "readinessProbe" not in self.spec)

    # --- life ----------------------------------------------------------------------------------------------------------

    def adopt(self, stray: int | None) -> bool:
        """Takes over the process of an agent before us. `stray` is one that carries our mark, should the record have been lost."""
        kept = self._record()
        if kept is not None:
            self.restarts, self._started_at, self.last = kept["restarts"], kept["started_at"], kept["last"]
            self._backoff = RestartBackoff(kept["next_seconds"])
        found = Identity(**kept["identity"]) if kept and kept["identity"] else None
        if found is not None and is_alive(found):
            self._hold(found)
        elif stray is not None and (other := identify(stray)) is not None:
            self.restarts += 1 if self.last is not None or found is not None else 0
            self._started_at = now()
            self._hold(other)
            self._keep()
        elif found is not None:
            self._ended(UNKNOWN_EXIT, _UNKNOWN)
        return self.is_running

    def start_if_due(self, prepare: Callable[[], tuple[list[str], dict[str, str]]]) -> None:
        """Starts it, unless it runs, is over, or still waits for its restart."""
        if self.is_running or self.is_over or time.monotonic() < self._due:
            return
        if self.last is not None and self.problem is None:
            self.restarts += 1
        command: list[str] = []
        try:
            command, env = prepare()
            with logs.opened(self.folder, self.name) as out:
                self._child = subprocess.Popen(
                    command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                    cwd=self.spec.get("workingDir") or self.folder,
                )  # fmt: skip
        except OSError as error:
            self.problem = {
                "reason": "CreateContainerError", "message": f"{command[0]}: {error}" if command else str(error),
            }  # fmt: skip
            self._wait_for_restart(0.0)
            return
        self.problem, self._started_at = None, now()
        self.ready_found = self.startup_found = False
        found = identify(self._child.pid)
        if found is None:  # it is our child, so at the least a zombie is there
            raise RuntimeError(f"the process {self._child.pid} that was just started is not in /proc")
        self._hold(found)
        self._keep()

    def seconds_to_restart(self) -> float | None:
        """How long until `start_if_due` does something; None while there is nothing to wait for."""
        return None if self.is_running or self.is_over else max(0.0, self._due - time.monotonic())

    def signal(self, number: int) -> None:
        """Sends a signal to exactly this process."""
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def release(self) -> None:
        """Lets go of the process without ending it: the next agent adopts it."""
        self._unwatch()
        if self._child is not None and self._child.returncode is None:
            self._child.returncode = 0  # Popen would complain that nobody waits for it, which is what is meant

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _hold(self, identity: Identity) -> None:
        try:
            self._pidfd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            self._ended(UNKNOWN_EXIT, _UNKNOWN)
            return
        self.identity, self._began = identity, time.monotonic()
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)

    def _on_exit(self) -> None:
        identity, child = self.identity, self._child
        self._unwatch()
        if identity is None:
            return
        self._end_stragglers(identity.pid)
        code = None if child is None else child.wait()
        if code is None:
            self._ended(UNKNOWN_EXIT, _UNKNOWN)
        else:
            self._ended(128 - code if code < 0 else code, "Completed" if code == 0 else "Error")
        self._changed()

    def _end_stragglers(self, leader: int) -> None:
        """What a container's main process leaves behind goes with it."""
        for pid, _ in marked(CONTAINER_MARK, self.mark):
            with suppress(ProcessLookupError, PermissionError):
                if pid != leader and os.getpgid(pid) == leader:
                    os.kill(pid, signal.SIGKILL)

    @property
    def mark(self) -> str:
        """What its processes carry in their environment."""
        return f"{self.folder.name}/{self.name}"

    def _ended(self, code: int, reason: str) -> None:
        says_why = code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        message = logs.tail(self.folder, self.name) if says_why else ""
        if reason == _UNKNOWN:
            message = _UNKNOWN_MESSAGE
        self.last = {
            "exitCode": code, "reason": reason, "startedAt": self._started_at or now(), "finishedAt": now(),
            **({"message": message} if message else {}),
        }  # fmt: skip
        ran = time.monotonic() - self._began if self._began else 0.0
        self.identity = self._child = None
        self.ready_found = self.startup_found = False
        self._wait_for_restart(ran)
        self._keep()

    def _wait_for_restart(self, ran_seconds: float) -> None:
        self._waits_seconds, self._backoff = self._backoff.ended(ran_seconds)
        self._due = time.monotonic() + self._waits_seconds

    # --- what is written down and shown --------------------------------------------------------------------------------

    def status(self) -> Json:
        """Its entry in the Pod's status."""
        if self.identity is not None:
            state: Json = {"running": {"startedAt": self._started_at}}
        elif self.is_over and self.last is not None:
            state = {"terminated": self.last}
        elif self.problem is not None:
            state = {"waiting": self.problem}
        elif self.last is not None and self._due > time.monotonic():
            message = f"back-off {self._waits_seconds:.0f}s restarting failed container={self.name}"
            state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        elif self.last is not None:
            state = {"terminated": self.last}
        else:
            state = {"waiting": {"reason": "ContainerCreating"}}
        pid = self.identity.pid if self.identity else 0
        shown = {"ready": self.is_ready, "started": self.has_started}
        return container_status(self.spec, state=state, last=self.last, restarts=self.restarts, pid=pid, **shown)

    def _record(self) -> Json | None:
        try:
            kept: Json = json.loads((self.folder / f"{self.name}.json").read_text())
        except (OSError, ValueError):
            return None
        return kept

    def _keep(self) -> None:
        kept = {
            "identity": asdict(self.identity) if self.identity else None, "restarts": self.restarts, "started_at": self._started_at,
            "last": self.last, "next_seconds": self._backoff.next_seconds,
        }  # fmt: skip
        draft = self.folder / f"{self.name}.json.tmp"
        draft.write_text(json.dumps(kept))
        draft.replace(self.folder / f"{self.name}.json")
