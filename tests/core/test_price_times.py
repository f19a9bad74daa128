"""How long a rollout takes, and how long its sessions are by then."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.budget import PageWindow, pages_for
from kvroll_core.price import PriceAsk, Rate, Rates, RollSettings, SessionClass, price
from kvroll_core.price.walk import aged
from kvroll_core.words import WayOn
from tests.core.test_price import CLASSES, change, sessions


def test_seconds_by_hand() -> None:
    rates = Rates(Rate(0.1), Rate(0.01), Rate(1e6), Rate(20.0))
    settings = RollSettings(allow=(WayOn.REPLAY,), parallel=2)
    ask = PriceAsk(change(weights="int8", kv="bf16"), ((sessions(4, 100, 900),), ()), settings=settings, rates=rates)
    # Two groups: start 20 s and 6 s of passes each, in which four sessions grow from 100 to 360 tokens of 10 ms; until the first is
    # computed it has 360 / 0.9, and the others that tenth too; four moves, two at a time, of 0.1 s.
    first = round(360 / 0.9)
    assert first < price(ask).tokens_to_replay / 4 < first * 1.3
    moving = price(ask).tokens_to_replay * 0.01 + 0.2
    assert price(ask).seconds == pytest.approx(2 * 26 + moving)
    assert price(ask).device_seconds_idle == pytest.approx(2 * 26)
    assert price(replace(ask, settings=replace(settings, max_surge=2))).seconds == pytest.approx(26 + moving)
    finishing = replace(ask, settings=replace(settings, allow=(WayOn.FINISH,)))
    assert price(finishing).seconds == pytest.approx(2 * 26 + 90 - 26)
    limited = replace(
        ask, change=change(), settings=replace(settings, allow=(WayOn.CONVERT, WayOn.REPLAY), bytes_per_second=10_000)
    )
    assert price(limited).seconds == pytest.approx(2 * 26 + 0.2 + price(limited).bytes_to_move / 10_000)


def test_sessions_of_a_later_group_are_longer_by_its_turn_and_ended_ones_are_replaced_by_the_like() -> None:
    rates = Rates(Rate(0.1), Rate(0.01), Rate(1e6), Rate(5.0))
    allow = RollSettings(allow=(WayOn.REPLAY,), parallel=1)
    later = PriceAsk(
        change(weights="int8", kv="bf16"),
        ((), (sessions(1, 10, 900),)),
        settings=replace(allow, parallel=1),
        rates=rates,
    )
    assert price(later).tokens_to_replay == round(230 / 0.9)  # two turns of 11 s, ten tokens a second
    ended = replace(later, groups=((), (sessions(1, 10, 150),)))
    assert price(ended).tokens_to_replay == round(10 / 0.9)


@given(CLASSES, st.integers(0, 10_000))
def test_ageing_takes_from_what_remains_what_it_adds(one: SessionClass, steps: int) -> None:
    older = aged(one, steps, PageWindow())
    assert older.tokens - one.tokens == one.max_remaining_tokens - older.max_remaining_tokens >= 0
    assert older.pages == one.sessions * pages_for(older.mean_tokens)


def test_a_windowed_session_grows_by_no_page_once_its_window_is_full() -> None:
    one, window = sessions(2, 320, 5000), PageWindow(96, 64)
    assert window.decoding_pages(320) == 3
    held = replace(one, pages=2 * 3)
    assert aged(held, 32, window).pages == held.pages
    assert aged(held, 3200, window).pages == held.pages
    assert aged(held, 32, PageWindow()).pages == held.pages + 2
    assert aged(replace(sessions(2, 32, 5000), pages=2), 64, window).pages == 2 * 3


def test_a_long_replay_takes_longer_by_what_its_tokens_look_back_on() -> None:
    """Measured on prompts whose tokens look back on 50, the shape of a small model: by hand, and none where that is not known."""
    rates = Rates(Rate(1e9), Rate(0.01), Rate(1e6), Rate(5.0), prefill_context_tokens=50)
    ask = PriceAsk(change(weights="int8", kv="bf16"), ((sessions(1, 4000, 10),),), rates=rates)
    ask = replace(ask, settings=RollSettings(allow=(WayOn.REPLAY,), parallel=1))
    shape = ask.change.shape
    linear, by_token = 2 * shape.matrix_elements, 1.7 * 4 * shape.heads * shape.head_dim * shape.layers
    grows = (linear + 2000.5 * by_token) / (linear + 50.5 * by_token)
    found = price(ask)
    assert found.tokens_to_replay == 4000
    still = price(replace(ask, rates=replace(rates, prefill_context_tokens=None)))
    fixed = still.seconds - 40.0
    assert found.seconds - fixed == pytest.approx(40 * grows, rel=0.01)
