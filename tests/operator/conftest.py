"""Lets the tests of this folder import the simulated cluster as `tests.operator.simulated_cluster`, however pytest was started."""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
if _ROOT not in sys.path:
    sys.path.append(_ROOT)

import asyncio  # noqa: E402
from collections.abc import AsyncIterator  # noqa: E402

import pytest  # noqa: E402

from kvroll_operator.gate.opener import SourceOpener  # noqa: E402
from tests.operator.fake_api import FakeApi  # noqa: E402
from tests.operator.gate_subject import OWNER, PATHS  # noqa: E402

# pytest-asyncio would make an event loop to remember, and leave it open, were none set when its first test begins.
asyncio.set_event_loop(None)


@pytest.fixture
async def opener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SourceOpener]:
    monkeypatch.setattr("kvroll_operator.gate.web.CONNECT_PAUSES_SECONDS", (0.05, 0.1, 0.2))
    made = SourceOpener(FakeApi(), OWNER, PATHS, tmp_path)
    yield made
    await made.close()
