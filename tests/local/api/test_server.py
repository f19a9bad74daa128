"""The server as its clients meet it: TLS, token, one process a state folder, the process of its own."""

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from kvroll_local.api.access import Access
from kvroll_local.api.server import ApiServer
from kvroll_local.api.store.database import StoreInUse
from tests.local.api.conftest import CRDS, POOLS, client_of, pool


async def test_it_serves_who_bears_the_token(server: ApiServer, api: httpx.AsyncClient) -> None:
    assert (await api.get("/version")).json()["gitVersion"].endswith("+kvroll.embedded")
    async with client_of(server, token="wrong") as stranger:
        refused = await stranger.get(POOLS)
    assert (refused.status_code, refused.json()["reason"]) == (401, "Unauthorized")


async def test_a_written_pool_is_there_after_a_restart(tmp_path: Path, crds: list[dict[str, Any]]) -> None:
    access = Access.load(tmp_path)
    async with ApiServer(tmp_path, crds, access) as server, client_of(server) as api:
        made = (await api.post(POOLS, json=pool())).raise_for_status().json()
    async with ApiServer(tmp_path, crds, Access.load(tmp_path)) as server, client_of(server) as api:
        assert (await api.get(f"{POOLS}/chat")).json() == made


async def test_a_second_server_in_the_same_folder_is_refused(
    server: ApiServer, tmp_path: Path, crds: list[dict[str, Any]]
) -> None:
    with pytest.raises(StoreInUse, match="one API server at a time"):
        ApiServer(tmp_path, crds, server.access)


def test_nobody_else_reads_the_secrets(tmp_path: Path) -> None:
    access = Access.load(tmp_path / "state")
    access.write_kubeconfig(tmp_path / "state" / "kubeconfig", "https://127.0.0.1:1")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()} == {
        "token": 0o600,
        "api.crt": 0o600,
        "api.key": 0o600,
        "kubeconfig": 0o600,
    }
    assert Access.load(tmp_path / "state") == access, "a second start keeps token and certificate"


@pytest.mark.slow
async def test_the_process_of_its_own_writes_a_kubeconfig_that_works(tmp_path: Path) -> None:
    kubeconfig, port = tmp_path / "kubeconfig", tmp_path / "port"
    files = [str(path) for path in CRDS.glob("*.yaml")]
    arguments = ["--state", str(tmp_path / "state"), "--port-file", str(port), "--kubeconfig", str(kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kvroll_local.api", *arguments, "--crd", *files, env={**os.environ, "PYTHONPATH": "local"}
    )
    try:
        while not port.exists():
            assert process.returncode is None
            await asyncio.sleep(0.05)
        config = yaml.safe_load(kubeconfig.read_text())
        assert config["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{port.read_text()}"
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
