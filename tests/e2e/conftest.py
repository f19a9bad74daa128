"""The end-to-end suite on both back ends: one `kvroll up`, and one install of the charts, for all tests; a pool a test.

`local` tests run against `kvroll up` on this machine and need neither root nor Go; `cluster` tests against `make cluster-up`'s
Kubernetes or any `KUBECONFIG`. A test that can run on one only says so with `only_on`, and why.
"""

import asyncio
import os
import re
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from kvroll_bench.trial import TrialPool
from kvroll_cli.demo.backends.backend import Backend
from kvroll_cli.demo.backends.embedded import EmbeddedBackend
from kvroll_cli.demo.backends.kubernetes import KubernetesBackend
from kvroll_cli.demo.backends.objects import BackendError

NAMESPACE = "kvroll-e2e"
BACKENDS = ("Embedded", "Kubernetes")
TIERS = {"Embedded": "local", "Kubernetes": "cluster"}
_T = TypeVar("_T")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test once a back end, each of these in its tier."""
    if "backend" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only_on")
    names = [name for name in BACKENDS if only is None or name == only.args[0]]
    if only is not None and not only.kwargs.get("reason"):
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: only_on needs the reason")
    found = [pytest.param(name, marks=getattr(pytest.mark, TIERS[name])) for name in names]
    metafunc.parametrize("backend", found, indirect=True, scope="session")


class Background:
    """An event loop of its own, for a back end that outlives the loops of the tests."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="backend", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The back end with operator and gateway on it."""
    background = Background()
    try:
        made: Backend = EmbeddedBackend() if request.param == "Embedded" else KubernetesBackend(NAMESPACE)
        background.run(made.start())
    except BackendError as error:
        background.close()
        pytest.fail(f"the {TIERS[request.param]} tests need the back end {request.param}: {error}")
    yield made
    background.run(made.stop())
    background.close()


@pytest.fixture
def pool(backend: Backend, request: pytest.FixtureRequest) -> Iterator[TrialPool]:
    """A pool named after the test; gone with it."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:20].strip("-")
    made = TrialPool(backend, name, asyncio.run(backend.gateway_url()))
    yield made
    asyncio.run(made.objects.delete("kvpool", name, 180))


@pytest.fixture
def kvroll_environment(backend: Backend) -> dict[str, str]:
    """For `kvroll` and `kubectl` as commands: a kubeconfig that names the back end."""
    if isinstance(backend, EmbeddedBackend):
        return {**os.environ, "KUBECONFIG": str(backend.kubeconfig)}
    return dict(os.environ)
