"""A page that did not verify can be found by nobody: not by its own session's Prepare, and not by another session's Offer."""

from collections.abc import Callable

import pytest

from kvroll_worker.engine.engine import Engine
from kvroll_worker.kv.page_hash import content_hash
from kvroll_worker.move.target.landing import adopt, land, restore
from kvroll_worker.move.target.pages import WholePage
from kvroll_worker.move.target.reservations import ArrivedSession
from kvroll_worker.port import EnginePort
from kvroll_worker.request import SessionState
from tests.doubles.engine_double import EngineDouble
from tests.worker.conftest import make_engine, make_model, user_cache  # noqa: F401
from tests.worker.tiny_model import MakeEngine, state_of

STATE = state_of("s", list(range(70)))
Damage = Callable[[bool], None]


@pytest.fixture
def ops_name() -> str:
    return "native"


@pytest.fixture(params=["double", "engine"])
def landing(request: pytest.FixtureRequest, make_engine: MakeEngine) -> tuple[EnginePort, Damage]:  # noqa: F811
    """An engine, and a switch by which every page that lands is damaged in memory."""
    if request.param == "double":
        double = EngineDouble()

        def switch(on: bool) -> None:
            double.on_write = (lambda data: bytes([data[0] ^ 1]) + data[1:]) if on else None

        return double, switch
    engine: Engine = make_engine()
    write = engine.storage.write

    def damage(on: bool) -> None:
        def damaged(page_id: int, data: bytes) -> None:
            write(page_id, bytes([data[0] ^ 1]) + data[1:] if on else data)

        engine.storage.write = damaged  # type: ignore[method-assign]

    return engine, damage


def page_of(engine: EnginePort, filler: int = 7) -> WholePage:
    data = bytes([filler]) * engine.stats().page_bytes
    return WholePage(0, True, content_hash(data), data)


def arrival_of(engine: EnginePort, name: str) -> tuple[ArrivedSession, SessionState]:
    state = state_of(name, list(range(70)))
    engine.reserve(name, 3)
    return ArrivedSession(state), state


def test_a_damaged_page_is_found_by_nobody(landing: tuple[EnginePort, Damage]) -> None:
    engine, damage = landing
    damage(True)
    page = page_of(engine)
    mine, state = arrival_of(engine, "mine")
    other, _ = arrival_of(engine, "other")
    assert land(engine, "mine", mine, [page]) == [0]
    assert not adopt(engine, "other", other, 0, page.content_hash)
    assert restore(engine, mine, state, [page.content_hash], 32, 0) == [0]
    assert land(engine, "other", other, [WholePage(0, True, page.content_hash, b"")]) == [0]
    engine.check_integrity()


def test_a_page_that_verified_is_found_and_a_later_damaged_one_in_its_place_is_not(
    landing: tuple[EnginePort, Damage],
) -> None:
    engine, damage = landing
    first, second = page_of(engine, 7), page_of(engine, 8)
    mine, state = arrival_of(engine, "mine")
    damage(False)
    assert land(engine, "mine", mine, [first]) == []
    damage(True)
    assert land(engine, "mine", mine, [second]) == [0]
    other, _ = arrival_of(engine, "other")
    assert not adopt(engine, "other", other, 0, first.content_hash)
    assert not adopt(engine, "other", other, 0, second.content_hash)
    assert restore(engine, mine, state, [first.content_hash], 32, 0) == [0]
    damage(False)
    assert land(engine, "mine", mine, [second]) == []
    assert adopt(engine, "other", other, 0, second.content_hash)
    engine.check_integrity()
