"""The table of requests against the embedded server, and against a real Kubernetes where one is up."""

import base64
import os
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from kvroll_local.api.access import Access
from kvroll_local.api.server import ApiServer
from tests.local.api.conftest import CRDS, client_of
from tests.local.conformance.scenario import run
from tests.local.conformance.table import SCENARIOS

pytestmark = pytest.mark.slow

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
scenarios = pytest.mark.parametrize("name", SCENARIOS)


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    crds = [yaml.safe_load(path.read_text()) for path in CRDS.glob("*.yaml")]
    async with ApiServer(tmp_path, crds, Access.load(tmp_path)) as server, client_of(server) as client:
        yield client


@dataclass(frozen=True)
class Cluster:
    """Where a real API server is, and what it takes to speak to it."""

    url: str
    trust: ssl.SSLContext
    headers: dict[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster that KUBECONFIG names, with kvroll's CRDs: those that are missing are there for these tests alone."""
    named, folder = os.environ.get("KUBECONFIG"), tmp_path_factory.mktemp("cluster")
    if not named:
        pytest.fail('expected KUBECONFIG of a Kubernetes: make cluster-up, then eval "$(python -m kvroll_cluster env)"')
    config = yaml.safe_load(Path(named).read_text())
    context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    place = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
    user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
    trust = ssl.create_default_context(cafile=str(_file(folder / "ca.crt", place, "certificate-authority")))
    if "client-certificate" in user or "client-certificate-data" in user:
        own = (_file(folder / "own.crt", user, "client-certificate"), _file(folder / "own.key", user, "client-key"))
        trust.load_cert_chain(*own)
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    found = Cluster(place["server"], trust, headers)
    with httpx.Client(base_url=found.url, verify=trust, headers=headers, timeout=60, trust_env=False) as client:
        made = [name for path in sorted(CRDS.glob("*.yaml")) if (name := _install(client, path))]
        yield found
        for name in made:
            client.delete(f"{_DEFINITIONS}/{name}").raise_for_status()


@pytest.fixture
async def kubernetes(cluster: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=cluster.url, verify=cluster.trust, headers=cluster.headers, timeout=60, trust_env=False
    ) as client:
        yield client


def _file(path: Path, entry: dict[str, str], key: str) -> Path:
    if key in entry:
        return Path(entry[key])
    path.write_bytes(base64.b64decode(entry[f"{key}-data"]))
    return path


def _install(client: httpx.Client, path: Path) -> str:
    """The name of the CRD, where it had to be made; returns when it is served."""
    crd = yaml.safe_load(path.read_text())
    name, spec = crd["metadata"]["name"], crd["spec"]
    if client.get(f"{_DEFINITIONS}/{name}").status_code == 200:
        return ""
    client.post(_DEFINITIONS, json=crd).raise_for_status()
    while (
        client.get(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}").status_code == 404
    ):
        time.sleep(0.1)
    return str(name)


async def _try(client: httpx.AsyncClient, name: str) -> None:
    namespace = f"kvroll-table-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    (await client.post("/api/v1/namespaces", json=body)).raise_for_status()
    try:
        await run(SCENARIOS[name], client, namespace)
    finally:
        (await client.delete(f"/api/v1/namespaces/{namespace}")).raise_for_status()


@scenarios
@pytest.mark.fast_where(
    name=(
        "a made object has an identity, defaults and no status",
        "rules are enforced",
        "two writers do not overwrite each other",
        "patches",
        "lists",
    )
)
async def test_the_embedded_server_answers_as_the_table_says(embedded: httpx.AsyncClient, name: str) -> None:
    await _try(embedded, name)


@scenarios
@pytest.mark.e2e
async def test_kubernetes_answers_as_the_table_says(kubernetes: httpx.AsyncClient, name: str) -> None:
    await _try(kubernetes, name)
