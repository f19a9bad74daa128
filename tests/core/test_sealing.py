"""The one rule of sealing: monotone, by position alone, and the same for reading, holding and moving pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.precision.formats import KV_FORMATS, PAGE_TOKENS
from kvroll_core.precision.sealing import OPEN_FORMAT, SEALED_FORMATS, ResidualError, Sealing, sealed_pages

residuals = st.integers(1, 16).map(lambda pages: pages * PAGE_TOKENS)
positions = st.integers(0, 5000)


@given(positions, residuals)
def test_at_least_the_residual_before_a_token_is_open_and_less_than_a_page_more(position: int, residual: int) -> None:
    opened = position - sealed_pages(position, residual) * PAGE_TOKENS
    assert opened == position or residual <= opened < residual + PAGE_TOKENS


@given(positions, residuals)
def test_all_tokens_of_a_page_read_the_same_pages_sealed(position: int, residual: int) -> None:
    first = position // PAGE_TOKENS * PAGE_TOKENS
    assert sealed_pages(position, residual) == sealed_pages(first, residual)
    assert sealed_pages(first + PAGE_TOKENS, residual) - sealed_pages(first, residual) in (0, 1)


@given(st.integers(1, 5000), residuals, st.sampled_from(sorted(SEALED_FORMATS)))
def test_what_a_session_holds_is_what_its_last_token_reads(tokens: int, residual: int, kv_format: str) -> None:
    sealing = Sealing(kv_format, residual)
    assert sealing.settled(tokens) == sealing.sealed(tokens - 1)
    assert sealing.settled(tokens) + sealing.opened(tokens) == -(-tokens // PAGE_TOKENS)
    assert sealing.opened(tokens) <= sealing.open_pages
    forms = [sealing.form(index, tokens) for index in range(-(-tokens // PAGE_TOKENS))]
    assert forms == sorted(forms, key=lambda form: form == OPEN_FORMAT)
    assert forms.count(kv_format) == sealing.final(tokens)


@given(st.integers(1, 5000), st.sampled_from([name for name in KV_FORMATS if name not in SEALED_FORMATS]))
def test_other_formats_have_no_open_pages(tokens: int, kv_format: str) -> None:
    sealing = Sealing(kv_format)
    assert (sealing.open_pages, sealing.opened(tokens), sealing.sealed(tokens)) == (0, 0, 0)
    assert sealing.settled(tokens) == -(-tokens // PAGE_TOKENS)
    assert sealing.final(tokens) == tokens // PAGE_TOKENS
    assert sealing.form(tokens // PAGE_TOKENS, tokens) == kv_format


@pytest.mark.parametrize("residual", [0, 16, 33, -32])
def test_a_residual_that_is_not_whole_pages_is_refused_where_it_matters(residual: int) -> None:
    with pytest.raises(ResidualError, match="multiple of 32, at least 32, found"):
        Sealing("kivi2", residual)
    Sealing("bf16", residual)
