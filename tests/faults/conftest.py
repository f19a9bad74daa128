"""The fault suites: minutes of random or planted trouble, each with figures for build/bench/faults.json.

A part is a file `test_<part>.py` here, run alone by `make test-faults PART=<part>` (dashes for underscores), and left out of `make test`.
It asks for `fault_report` and hands it what it counted, before it asserts, so that the figures of a failure are kept too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvroll_bench.keyed_report import merge_key

REPORT = Path(__file__).parents[2] / "build" / "bench" / "faults.json"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.fault)


@pytest.fixture
def fault_report(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """Writes the figures of this part under its key, the file's name without `test_`; the keys of other parts stay."""
    part = request.path.stem.removeprefix("test_")
    return lambda figures: merge_key(REPORT, part, figures)
