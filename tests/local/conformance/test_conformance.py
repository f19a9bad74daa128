"""The table of requests against the embedded server, and against a real Kubernetes where one is up."""

import asyncio
import base64
import os
import ssl
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import yaml

from kvroll_local.api.access import Access
from kvroll_local.api.server import ApiServer
from tests.local.api.conftest import CRDS, client_of
from tests.local.conformance.scenario import run
from tests.local.conformance.table import SCENARIOS

scenarios = pytest.mark.parametrize("name", SCENARIOS)


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    crds = [yaml.safe_load(path.read_text()) for path in CRDS.glob("*.yaml")]
    async with ApiServer(tmp_path, crds, Access.load(tmp_path)) as server, client_of(server) as client:
        yield client


@pytest.fixture
async def kubernetes(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the cluster that KUBECONFIG names."""
    named = os.environ.get("KUBECONFIG")
    if not named:
        pytest.fail('expected KUBECONFIG of a cluster with kvroll\'s CRDs: eval "$(python -m kvroll_cluster env)"')
    config = yaml.safe_load(Path(named).read_text())
    context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
    user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
    trust = ssl.create_default_context(cafile=str(_file(tmp_path / "ca.crt", cluster, "certificate-authority")))
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    if "client-certificate" in user or "client-certificate-data" in user:
        own = (_file(tmp_path / "own.crt", user, "client-certificate"), _file(tmp_path / "own.key", user, "client-key"))
        trust.load_cert_chain(*own)
    url = cluster["server"]
    async with httpx.AsyncClient(base_url=url, verify=trust, headers=headers, timeout=60, trust_env=False) as client:
        for path in sorted(CRDS.glob("*.yaml")):
            await _install(client, path)
        yield client


def _file(path: Path, entry: dict[str, str], key: str) -> Path:
    if key in entry:
        return Path(entry[key])
    path.write_bytes(base64.b64decode(entry[f"{key}-data"]))
    return path


async def _install(client: httpx.AsyncClient, path: Path) -> None:
    crd = yaml.safe_load(path.read_text())
    place = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    if (await client.get(place)).status_code == 404:
        made = await client.patch(
            f"{place}?fieldManager=conformance",
            content=path.read_text(),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        made.raise_for_status()
        group, version, plural = (
            crd["spec"]["group"],
            crd["spec"]["versions"][0]["name"],
            crd["spec"]["names"]["plural"],
        )
        while (await client.get(f"/apis/{group}/{version}/{plural}")).status_code == 404:
            await asyncio.sleep(0.1)


async def _try(client: httpx.AsyncClient, name: str) -> None:
    namespace = f"kvroll-table-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    (await client.post("/api/v1/namespaces", json=body)).raise_for_status()
    try:
        await run(SCENARIOS[name], client, namespace)
    finally:
        (await client.delete(f"/api/v1/namespaces/{namespace}")).raise_for_status()


@scenarios
async def test_the_embedded_server_answers_as_the_table_says(embedded: httpx.AsyncClient, name: str) -> None:
    await _try(embedded, name)


@scenarios
@pytest.mark.e2e
async def test_kubernetes_answers_as_the_table_says(kubernetes: httpx.AsyncClient, name: str) -> None:
    await _try(kubernetes, name)
