"""Ctrl-C in `kvroll demo` ends it in order, whenever it comes: no process, no file and no traceback is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.local, pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(600)]
# A shell's background job ignores SIGINT and hands that on; whoever presses Ctrl-C has none of that.
KVROLL = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from kvroll_cli.main import main; main()"
)
# What the demo says when it comes to each part, from the first process to the middle of a roll.
PARTS = {"the site starts": "kvroll up, in a folder", "workers start": "workers start", "a roll begins": "patch:"}
INTERRUPTED = 130


def running(folder: Path) -> dict[int, str]:
    """The processes whose command or environment names the folder, ourselves left out: pid and command."""
    found, name = {}, str(folder).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue  # it has ended meanwhile, or is another user's
        if int(entry.name) != os.getpid() and (name in command or name in environment):
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


@pytest.mark.parametrize("part", PARTS)
def test_ctrl_c_leaves_nothing(tmp_path: Path, part: str) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", KVROLL, "demo", "--report", str(tmp_path / "report.json")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary), "NO_COLOR": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = ""
        while PARTS[part] not in said:
            line = process.stdout.readline()
            assert line, f"the demo ended before: {said}"
            said += line
        if part != "the site starts":
            assert len(running(temporary)) > 1, "nothing to leave behind: the test proves nothing"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == INTERRUPTED, said + rest
    assert "Traceback" not in said + rest
    while left := running(temporary):  # one that was told to end may take a moment; the test's own time-out ends this
        time.sleep(0.2)
    assert not left
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "report.json").exists()
