"""Pages outside the windows: what is given back is never looked at again, and the books of start-up are those of the engine."""

from dataclasses import replace
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.budget import BudgetError, BudgetRequest, ModelShape, PageWindow, page_window, pages_for, plan_budget
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.precision.precision import Precision

SHAPE = ModelShape(2, 64, 4, 2, 16, 96, 264, True, 4096)
windows = st.integers(1, 140)
batches = st.integers(1, 70)


@given(windows, batches, st.integers(0, 400), st.integers(0, 100))
def test_a_page_is_needed_exactly_while_a_later_token_sees_it(window: int, batch: int, num_kv: int, page: int) -> None:
    first_seen = max(num_kv + 1 - window, 0)  # by the next token, which stands at num_kv; later ones see less
    sees_page = (page + 1) * PAGE_TOKENS > first_seen
    assert (page >= PageWindow(window, batch).first_page(num_kv)) == sees_page


@given(windows, batches, st.integers(1, 500), st.lists(st.integers(1, 70), min_size=1, max_size=4))
def test_a_session_holds_at_most_what_admission_asked_for(
    window: int, batch: int, tokens: int, steps: list[int]
) -> None:
    sizes = cycle(steps)
    found, num_kv, most = PageWindow(window, batch), 0, 0
    while num_kv < tokens:
        first, end = found.first_page(num_kv), found.end_page(num_kv, tokens)
        assert end >= found.first_page(max(num_kv - 1, 0)), "pages are never taken back"
        rows = min(next(sizes), batch, tokens - num_kv)
        assert end * PAGE_TOKENS >= num_kv + rows, "the next step has its pages"
        most = max(most, end - first)
        num_kv += rows
    assert most == found.session_pages(tokens) <= pages_for(tokens)


@given(windows, batches, st.integers(1, 30), st.integers(2, 2000))
def test_the_longest_session_is_the_longest_that_fits(window: int, batch: int, pages: int, limit: int) -> None:
    found = PageWindow(window, batch)
    longest = found.most_tokens(pages, limit)
    assert longest <= limit or longest == pages * PAGE_TOKENS
    assert found.session_pages(min(longest, limit)) <= pages
    assert longest >= limit or found.session_pages(longest + 1) > pages


def test_without_a_window_on_every_layer_nothing_is_freed() -> None:
    assert page_window(SHAPE, 64, "bf16") == PageWindow(0, 64)
    assert page_window(replace(SHAPE, windows=(33, 0)), 64, "bf16") == PageWindow(0, 64)
    assert page_window(replace(SHAPE, windows=(33, 33), sinks=4), 64, "bf16") == PageWindow(0, 64)
    assert page_window(replace(SHAPE, windows=(33, 100)), 64, "bf16") == PageWindow(100, 64)
    everything = PageWindow(0, 64)
    assert [everything.first_page(n) for n in (0, 100, 10_000)] == [0, 0, 0]
    assert everything.session_pages(1000) == everything.end_page(500, 1000) == pages_for(1000) == 32


def request(**changes: object) -> BudgetRequest:
    asked = BudgetRequest(Precision(), 4096, 4, 64, kv_memory_bytes=13 * 8192)
    return replace(asked, **changes)  # type: ignore[arg-type]


def test_the_budget_counts_the_pages_that_a_windowed_session_holds_at_once() -> None:
    windowed = plan_budget(replace(SHAPE, windows=(33, 33)), request())
    assert (windowed.pages, windowed.window.session_pages(4096), windowed.sessions_at_max_len) == (12, 4, 3)
    assert str(windowed).endswith("3 sessions at 4096 tokens (4 pages each: all layers look back on 33 tokens at most)")
    with pytest.raises(BudgetError, match="needs 128 pages"):
        plan_budget(replace(SHAPE, windows=(33, 0)), request())
    with pytest.raises(BudgetError, match=r"needs 4 pages .* max_model_len 96"):
        plan_budget(replace(SHAPE, windows=(33, 33)), request(kv_memory_bytes=4 * 8192))
