"""A process is named by more than its pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvroll_cluster.layout import layout_from
from kvroll_cluster.processes import Identity, Processes, kill, parse_start_ticks


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def identity_of(process: subprocess.Popen[bytes]) -> Identity:
    identity = Identity.of(process.pid)
    assert identity is not None
    return identity


def test_a_command_with_spaces_and_parentheses_does_not_shift_the_fields() -> None:
    fields = " ".join(["S", *(str(number) for number in range(4, 53))])
    assert parse_start_ticks(f"7 (a) b) (c) {fields}") == 22


def test_a_zombie_counts_as_ended() -> None:
    fields = " ".join(["Z", *(str(number) for number in range(4, 53))])
    assert parse_start_ticks(f"7 (x) {fields}") is None


def test_a_recycled_pid_is_never_killed(sleeper: subprocess.Popen[bytes]) -> None:
    real = identity_of(sleeper)
    for stranger in (replace(real, start_ticks=real.start_ticks - 1), replace(real, boot_id="another boot")):
        assert not stranger.alive()
        kill([stranger], signal.SIGKILL, wait_s=0.1)
    assert sleeper.poll() is None
    assert real.alive()


def test_kill_ends_the_right_process_and_returns_those_that_stay(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper)
    stopped = kill([identity], signal.SIGCONT, wait_s=0.05)
    assert stopped == [identity]
    assert kill([identity], signal.SIGKILL, wait_s=5.0) == []
    assert sleeper.wait() == -signal.SIGKILL


def test_a_free_pid_has_no_identity() -> None:
    assert Identity.of(2**22 + 1) is None


def test_records_survive_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    processes = Processes(layout_from({"KVROLL_CLUSTER_DIR": str(tmp_path)}))
    processes.layout.records.mkdir()
    me = Identity.of(os.getpid())
    assert me is not None
    text = f'{{"pid": {me.pid}, "start_ticks": {me.start_ticks}, "boot_id": "{me.boot_id}"}}'
    (processes.layout.records / "etcd.json").write_text(text)
    (processes.layout.records / "torn.json").write_text(text[:20])
    assert processes.records() == {"etcd": me}
    assert processes.dead() == []
