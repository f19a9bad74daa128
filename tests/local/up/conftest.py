"""`kvroll up` as a user starts it, over a state folder of the test's own."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvroll_local.node.environment import STATE_MARK
from kvroll_local.node.identity import marked

# A shell's background job ignores SIGINT and hands that on; whoever presses Ctrl-C has none of that.
_MAIN = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from kvroll_cli.main import main; main()"
)
KVROLL = [sys.executable, "-c", _MAIN]
MODEL = Path(os.environ.get("KVROLL_MODEL") or Path.home() / ".cache/kvroll/models/smollm2-135m-instruct")
_COMPLETE = re.compile(r"chat: .* complete, (http://\S+)/v1")


class Up:
    """One site, whose `kvroll up` may be killed and begun again. Waits end by the test's own time-out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "site"
        self.log = folder / "up.log"
        self.file = folder / "pool.yaml"
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def write_pool(self, **spec: Any) -> None:
        usual = {
            "replicas": 2,
            "model": {"name": "small", "uri": MODEL.as_uri()},
            "precision": {"weights": "bf16", "kvCache": "bf16"},
            "engine": {"maxModelLen": 2048, "kvMemory": "96Mi", "threads": 1, "args": ["--no-measure-device"]},
        }
        meta = {"name": "chat"}
        pool = {"apiVersion": "kvroll.dev/v1alpha1", "kind": "InferencePool", "metadata": meta, "spec": usual | spec}
        self.file.write_text(yaml.safe_dump(pool))

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "KUBECONFIG": str(self.state / "kubeconfig"),
            "KVROLL_STATE": str(self.state),
            "NO_COLOR": "1",
        }

    def begin(self, *flags: str) -> None:
        """Starts `kvroll up` in the background."""
        with self.log.open("ab") as log:
            command = [*KVROLL, "up", "--state", str(self.state), *flags]
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def complete(self, times: int = 1) -> None:
        """Waits until it has said so that many times."""
        while len(found := _COMPLETE.findall(self.log.read_text())) < times:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)
        self.url = found[-1]

    def kill(self) -> None:
        """kill -9 of `kvroll up`, which is the API server and the node agent."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def processes(self) -> dict[int, str]:
        """What runs of the site by itself: pid and module."""
        found = {}
        for pid, _ in marked(STATE_MARK, str(self.state)):
            words = (Path("/proc") / str(pid) / "cmdline").read_bytes().decode().split("\0")
            found[pid] = words[2] if len(words) > 2 else words[0]
        return found

    def pids(self, module: str) -> list[int]:
        return [pid for pid, found in self.processes().items() if found == module]

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        words = [*KVROLL, *command[1:]] if command[0] == "kvroll" else [*command]
        return subprocess.run(
            words, env=self.env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )

    @contextmanager
    def open(self, *command: str) -> Iterator[str]:
        """A verb that stays open; the address that it prints."""
        words = [*KVROLL, *command[1:]]
        with subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            found = re.search(r"http://\S+?(?=[;\s])", process.stdout.readline())
            try:
                assert found is not None
                yield found[0]
            finally:
                process.terminate()

    def done(self, *command: str) -> str:
        """The output of a command that must succeed."""
        found = self.run(*command)
        assert found.returncode == 0, f"{command}: {found.stderr}{found.stdout}"
        return found.stdout

    async def change(self, kv_cache: str) -> None:
        """Asks for another KV cache, as kubectl would."""
        patch = json.dumps({"spec": {"precision": {"kvCache": kv_cache}}})
        await asyncio.to_thread(self.done, *self.kubectl, "patch", "kvpool", "chat", "--type=merge", "-p", patch)

    @property
    def kubectl(self) -> list[str]:
        found = shutil.which("kubectl") or next(map(str, Path.home().glob(".cache/kvroll/cluster/*/bin/kubectl")), None)
        if found is None:
            pytest.skip("no kubectl on PATH")
        return [found, "--cache-dir", str(self.folder / "kubectl-cache")]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    if not (MODEL / "config.json").is_file():
        pytest.fail(f"expected the small model at {MODEL}, found none: make model")
    made = Up(tmp_path)
    made.write_pool()
    yield made
    ended = made.run("kvroll", "down", "--grace-seconds", "1")
    if made.process is not None and made.process.poll() is None:
        made.process.send_signal(signal.SIGKILL)
    if made.process is not None:
        made.process.wait()
    assert ended.returncode == 0, ended.stderr
    assert made.processes() == {}
    assert not made.state.exists()
