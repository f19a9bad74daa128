"""One install of the charts for all e2e tests, and a pool a test: against `make cluster-up`'s cluster or any `KUBECONFIG`."""

import asyncio
import re
from collections.abc import Iterator

import pytest

from kvroll_bench.trial import TrialPool
from kvroll_cli.demo import install
from kvroll_cli.demo.kube import CommandError, Kube

NAMESPACE = "kvroll-e2e"


@pytest.fixture(scope="session")
def site() -> install.Site:
    return install.Site.find()


@pytest.fixture(scope="session")
def kube(site: install.Site) -> Iterator[Kube]:
    """The cluster with kvroll installed in the e2e namespace."""
    try:
        cluster = Kube(NAMESPACE)
        asyncio.run(cluster.run("kubectl", "get", "--raw", "/readyz"))
    except CommandError as error:
        pytest.fail(f"the e2e tests need a cluster: {error}")
    asyncio.run(install.install(cluster, site))
    yield cluster
    asyncio.run(cluster.kubectl("delete", "kvpool", "--all", "--timeout=120s", check=False))


@pytest.fixture
def pool(kube: Kube, site: install.Site, request: pytest.FixtureRequest) -> Iterator[TrialPool]:
    """A pool named after the test; gone with it."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:20].strip("-")
    made = TrialPool(kube, site, name, asyncio.run(install.gateway_url(kube)))
    yield made
    asyncio.run(kube.kubectl("delete", "kvpool", name, "--ignore-not-found", "--timeout=120s", check=False))
