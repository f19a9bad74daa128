"""What every suite needs of the interpreter."""

import asyncio
from collections.abc import Iterator

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
