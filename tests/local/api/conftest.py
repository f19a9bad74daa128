"""A served API server on loopback, and a client that knows its certificate and token."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from kvroll_local.api.access import Access
from kvroll_local.api.server import ApiServer

CRDS = Path(__file__).parents[3] / "crds"
POOLS = "/apis/kvroll.dev/v1alpha1/namespaces/default/kvpools"


@pytest.fixture(scope="session")
def crds() -> list[dict[str, Any]]:
    return [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]


@pytest.fixture
async def server(tmp_path: Path, crds: list[dict[str, Any]]) -> AsyncIterator[ApiServer]:
    async with ApiServer(tmp_path, crds, Access.load(tmp_path)) as served:
        yield served


def client_of(server: ApiServer, token: str | None = None) -> httpx.AsyncClient:
    trust = ssl.create_default_context(cafile=str(server.access.certificate))
    headers = {"Authorization": f"Bearer {server.access.token if token is None else token}"}
    return httpx.AsyncClient(base_url=server.url, verify=trust, headers=headers, timeout=30, trust_env=False)


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(server) as client:
        yield client


def pool(name: str = "chat", **spec: Any) -> dict[str, Any]:
    """The smallest pool, with fields of its spec replaced."""
    usual = {
        "replicas": 3,
        "model": {"name": "chat", "uri": "file:///models/chat"},
        "precision": {"weights": "bf16", "kvCache": "bf16"},
    }
    return {
        "apiVersion": "kvroll.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name},
        "spec": usual | spec,
    }
