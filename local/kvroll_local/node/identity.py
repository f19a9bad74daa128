"""Which process it was: a pid alone may be another's by now."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Identity:
    """A process, for ever: no two share pid and start within one boot. `start_ticks` counts clock ticks since the boot."""

    pid: int
    start_ticks: int
    boot_id: str


def is_same(kept: Identity, boot_id: str, found: "tuple[int, str] | None") -> bool:
    """Whether the process that has the kept pid now, (start ticks, state letter) or None, is the kept one and runs."""
    return found is not None and kept.boot_id == boot_id and found[0] == kept.start_ticks and found[1] not in ("Z", "X")


def boot_id() -> str:
    """The kernel's name for this boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def stat(pid: int) -> tuple[int, str] | None:
    """(start ticks, state letter) of the process that has this pid, None without one."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    return int(fields[19]), fields[0]


def identify(pid: int) -> Identity | None:
    """The identity of a running process."""
    found = stat(pid)
    return Identity(pid, found[0], boot_id()) if found else None


def is_alive(kept: Identity) -> bool:
    """Whether exactly that process still runs."""
    return is_same(kept, boot_id(), stat(kept.pid))


def marked(variable: str, value: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(pid, environment) of every process of this user that was started with `variable=value`, ourselves left out."""
    wanted = f"{variable}={value}".encode()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            parts = (entry / "environ").read_bytes().split(b"\0")
            if wanted in parts:
                pairs = (part.decode(errors="replace").partition("=") for part in parts if part)
                yield int(entry.name), {name: text for name, _, text in pairs}
