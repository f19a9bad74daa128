"""What every suite needs of the interpreter."""

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def event_loop_of_tests_without_one() -> Iterator[None]:
    """looptime asks for the event loop in tests that have none, which makes one that nobody closes: by chance of order, the next
    test fails for it. This one is there instead, and is closed.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
