"""What every suite needs of the interpreter."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# An example may take as long as a busy machine makes it: a deadline of milliseconds fails for what runs beside it, not for what is tested.
settings.register_profile("kvroll", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kvroll")


@pytest.fixture(scope="session", autouse=True)
def event_loop_of_tests_without_one() -> Iterator[None]:
    """looptime asks for the event loop in tests that have none, which makes one that nobody closes: by chance of order, the next
    test fails for it. This one is there instead, and is closed.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A matrix keeps one of each kind in the fast tier: a case that no `fast_where` of its test names is slow."""
    for item in items:
        chosen = list(item.iter_markers("fast_where"))
        if chosen and not any(_is_named(item, mark.kwargs) for mark in chosen):
            item.add_marker("slow")


def _is_named(item: pytest.Item, wanted: Mapping[str, Any]) -> bool:
    """Whether each of those parameters has that value, or one of those in a tuple.

    Raises:
        UsageError: the test has no parameter of that name.
    """
    parameters: dict[str, Any] = getattr(item, "callspec").params if hasattr(item, "callspec") else {}  # noqa: B009
    if unknown := wanted.keys() - parameters.keys():
        raise pytest.UsageError(f"{item.nodeid}: expected fast_where of {[*parameters]}, found {sorted(unknown)}")
    return all(parameters[n] in (v if isinstance(v, tuple) else (v,)) for n, v in wanted.items())
