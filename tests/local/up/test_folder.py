"""The state folder: one holder, whatever became of the one before, and nothing left of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvroll_local.node.environment import CONTAINER_MARK, STATE_MARK
from kvroll_local.up.ending import end
from kvroll_local.up.errors import UpError
from kvroll_local.up.folder import SiteRecord, StateFolder, default_state

HOLD = (
    "import sys, pathlib; from kvroll_local.up.folder import StateFolder; StateFolder(pathlib.Path(sys.argv[1])).acquire();"
    " print('held', flush=True); sys.stdin.read()"
)
RECORD = SiteRecord("127.20.30", "default", "127.0.0.1", 8000, "")


def holder(state: Path) -> "subprocess.Popen[str]":
    """Another process that holds the folder."""
    local = str(Path(__file__).parents[3] / "local")
    command, env = [sys.executable, "-c", HOLD, str(state)], {**os.environ, "PYTHONPATH": local}
    made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert made.stdout is not None
    assert made.stdout.readline() == "held\n"
    return made


def test_a_second_one_is_refused_and_told_the_pid_and_the_folder(tmp_path: Path) -> None:
    with holder(tmp_path / "site") as first:
        folder = StateFolder(tmp_path / "site")
        with pytest.raises(UpError, match=rf"pid {first.pid}, state folder {tmp_path}/site; `kvroll down --state"):
            folder.acquire()
        found = folder.holder()
        assert found is not None
        assert found.pid == first.pid
        first.communicate("")
    folder.acquire()  # it ended: the folder is free
    folder.release()


def test_a_killed_holder_leaves_the_folder_free(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert StateFolder(tmp_path).holder() is None
        folder = StateFolder(tmp_path)
        folder.acquire()
        folder.release()


def test_a_removed_folder_is_made_again_by_whoever_waited_for_it(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "site")
    folder.acquire()
    folder.clear()
    folder.release()
    assert not folder.path.exists()
    again = StateFolder(tmp_path / "site")
    again.acquire()
    assert again.path.stat().st_mode & 0o777 == 0o700
    again.release()


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UpError, match="found other files"):
        StateFolder(tmp_path).acquire()
    with pytest.raises(UpError, match="expected a site's folder"):
        end(StateFolder(tmp_path), keep_state=False, grace_seconds=0, timeout_seconds=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex"]


def test_clearing_removes_what_is_ours_alone(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "site")
    folder.acquire()
    folder.remember(RECORD)
    (folder.path / "pods" / "uid").mkdir(parents=True)
    (folder.path / "notes.txt").write_text("mine")
    folder.clear()
    folder.release()
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]


def test_the_record_survives_and_a_broken_one_is_none(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    assert folder.record() is None
    folder.remember(RECORD)
    assert folder.record() == RECORD
    assert (tmp_path / "site.json").stat().st_mode & 0o777 == 0o600
    (tmp_path / "site.json").write_text(json.dumps({"subnet": "127.1.1"}))
    assert folder.record() is None


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:8000"), ("0.0.0.0", "http://127.0.0.1:8000"), ("::1", "http://[::1]:8000")],
)
def test_the_gateways_address_is_one_that_a_client_can_dial(host: str, url: str) -> None:
    assert SiteRecord("127.20.30", "default", host, 8000, "").gateway_url == url


def test_the_default_folder_follows_the_users_environment() -> None:
    assert default_state({"HOME": "/h"}) == Path("/h/.local/state/kvroll/up")
    assert default_state({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == Path("/s/kvroll/up")


@pytest.mark.parametrize("keep", [True, False])
def test_down_after_a_kill_ends_the_marked_processes_and_no_others(tmp_path: Path, keep: bool) -> None:
    folder = StateFolder(tmp_path / "site")
    folder.acquire()
    folder.remember(RECORD)
    folder.release()
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(1e6)"
    )
    sleep = [sys.executable, "-c", deaf]
    marks = [
        {STATE_MARK: str(folder.path), CONTAINER_MARK: "uid/engine"},
        {STATE_MARK: "/elsewhere", CONTAINER_MARK: "uid/engine"},
    ]
    ours, other = (subprocess.Popen(sleep, env={**os.environ, **mark}, stdout=subprocess.PIPE) for mark in marks)
    for process in (ours, other):
        assert process.stdout is not None
        process.stdout.readline()
    try:
        ended = end(folder, keep_state=keep, grace_seconds=0.2, timeout_seconds=5)
        assert (ended.told_pid, ended.num_orphans) == (None, 1)
        assert "1 processes of a killed `kvroll up`" in str(ended)
        assert ours.wait() == -signal.SIGKILL  # it did not listen to SIGTERM
        assert other.poll() is None
        assert folder.path.exists() == keep
    finally:
        for process in (ours, other):
            process.kill()
            process.communicate()
    again = end(folder, keep_state=False, grace_seconds=0, timeout_seconds=1)
    assert str(again) == f"nothing runs in {folder.path}"
    assert not folder.path.exists()
