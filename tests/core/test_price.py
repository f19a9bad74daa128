"""The price of a rollout, by property and by example."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroll_core.budget import BudgetRequest, ModelShape, pages_for
from kvroll_core.compat import Descriptor
from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS, kv_format
from kvroll_core.precision.precision import Precision
from kvroll_core.precision.sealing import SEALED_FORMATS
from kvroll_core.price import (
    Blocker,
    PlacedWorker,
    Price,
    PriceAsk,
    PriceChange,
    Rate,
    Rates,
    RateSource,
    RollSettings,
    SessionClass,
    Wish,
    WorkerFacts,
    gather,
    price,
)
from kvroll_core.words import DEFAULT_ALLOW, WayOn

SHAPE = ModelShape(30, 576, 9, 3, 64, 1536, 49152, True, 8192)
ASKED = BudgetRequest(Precision(), 8192, 64, 256, kv_memory_bytes=512 << 20, memory_limit_bytes=2 << 30)
HERE = Descriptor(1, "w", "bf16", "b", "c", "t", "h", "bf16", "v1", "", "tp1", "e", "k", "cpu", "", "", "", "isa", 8192)
MOVES = (WayOn.CONVERT, WayOn.EXACT, WayOn.REPLAY)


def change(weights: str = "bf16", kv: str = "int8", source_kv: str = "bf16") -> PriceChange:
    source = replace(HERE, kv_format=source_kv)
    return PriceChange(
        source=source,
        target=replace(HERE, weights_dtype=weights, kv_format=kv),
        shape=SHAPE,
        before=replace(ASKED, precision=Precision(kv_cache=source_kv)),
        after=replace(ASKED, precision=Precision(weights, kv)),
        pages_before=700,
    )


def sessions(count: int, tokens: int, remaining: int, **flags: bool) -> SessionClass:
    """`count` sessions of exactly that length."""
    return SessionClass(count, count * tokens, count * remaining, count * pages_for(tokens), **flags)


_BUILT_KV = st.sampled_from([name for name, f in KV_FORMATS.items() if f.built])
_BUILT_WEIGHTS = st.sampled_from([name for name, f in WEIGHT_FORMATS.items() if f.built])
CLASSES = st.builds(
    sessions,
    st.integers(1, 40),
    st.integers(1, 8000),
    st.integers(0, 4000),
    reproducible=st.booleans(),
    moved=st.booleans(),
)
_ALLOW = st.lists(st.sampled_from([w for w in WayOn if w is not WayOn.CHECKPOINT]), min_size=1, unique=True).map(tuple)
_SETTINGS = st.builds(
    RollSettings,
    allow=_ALLOW | st.just(DEFAULT_ALLOW),
    kv_across_weights=st.booleans(),
    parallel=st.integers(1, 8),
    bytes_per_second=st.none() | st.integers(1 << 10, 1 << 30),
    max_surge=st.integers(0, 3),
    max_unavailable=st.integers(0, 2),
    partition=st.integers(0, 2),
    group_size=st.integers(1, 2),
    devices=st.integers(1, 8),
    min_ready_seconds=st.integers(0, 60),
)
_RATES = st.builds(
    Rates,
    *(
        st.builds(Rate, st.floats(low, high), st.sampled_from(RateSource))
        for low, high in ((1e-4, 1.0), (1e-6, 0.1), (1e5, 1e10), (0.1, 600.0))
    ),
)
_ASKS = st.builds(
    PriceAsk,
    change=st.builds(change, _BUILT_WEIGHTS, _BUILT_KV, _BUILT_KV),
    groups=st.lists(st.lists(CLASSES, max_size=4).map(tuple), max_size=4).map(tuple),
    settled=st.integers(0, 2),
    settings=_SETTINGS,
    rates=_RATES,
)


# So slow that no session grows before its turn.
_STILL = Rates(step_seconds=Rate(1e6))


def still(ask: PriceAsk) -> PriceAsk:
    """No session grows: a group that waits for others to finish would see its own do so."""
    allow = tuple(w for w in ask.settings.allow if w not in (WayOn.FINISH, WayOn.FINISH_SOON)) or (WayOn.REPLAY,)
    return replace(
        ask, rates=replace(ask.rates, step_seconds=_STILL.step_seconds), settings=replace(ask.settings, allow=allow)
    )


def figures(found: Price) -> tuple[float, ...]:
    return (
        found.sessions,
        found.held,
        found.bytes_to_move,
        found.tokens_to_replay,
        found.surge_devices,
        found.device_seconds_idle,
        found.seconds,
        found.fit.pages_held,
        found.benefit.kv_bytes_before,
        found.benefit.kv_bytes_after,
    )


@settings(deadline=None, max_examples=60)
@given(_ASKS)
def test_classes_add_up_and_nothing_is_negative(ask: PriceAsk) -> None:
    found = price(ask)
    hops = sum(w.hops for w in found.ways)
    in_last = len(ask.in_scope) < len(ask.groups)
    assert sum(w.sessions for w in found.ways) == found.held
    # Each session is found once, and once more for every hop to a worker that is drained later.
    assert found.held - found.sessions <= hops if in_last else found.held == found.sessions + hops
    assert sum(w.bytes for w in found.ways) == found.bytes_to_move
    assert sum(w.tokens for w in found.ways) == found.tokens_to_replay
    assert min(figures(found)) >= 0
    assert {w.way for w in found.ways} <= {*ask.settings.allow, None}


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(_ASKS, CLASSES, st.data())
def test_more_sessions_never_cost_less(ask: PriceAsk, more: SessionClass, data: st.DataObject) -> None:
    if not ask.groups:
        return
    at = data.draw(st.integers(0, len(ask.groups) - 1))
    groups = tuple((*g, more) if i == at else g for i, g in enumerate(ask.groups))
    before, after = price(still(ask)), price(still(replace(ask, groups=groups)))
    assert all(new >= old for old, new in zip(figures(before), figures(after), strict=True))


@settings(deadline=None, max_examples=60)
@given(_ASKS, st.integers(1, 2000))
def test_longer_sessions_never_cost_less(ask: PriceAsk, more: int) -> None:
    """Where the way on does not hang on the length: FinishSoon is out, and the longest fits everywhere."""
    allow = tuple(w for w in ask.settings.allow if w is not WayOn.FINISH_SOON) or (WayOn.FINISH,)
    source, target = (replace(d, max_model_len=10**9) for d in (ask.change.source, ask.change.target))
    endless = replace(ask.change, source=source, target=target)
    ask = replace(ask, settings=replace(ask.settings, allow=allow), change=endless)
    longer = tuple(
        tuple(
            replace(c, tokens=c.tokens + more * c.sessions, pages=c.sessions * pages_for(c.mean_tokens + more))
            for c in g
        )
        for g in ask.groups
    )
    before, after = price(still(ask)), price(still(replace(ask, groups=longer)))
    # A page that becomes full enough to be sealed is fewer bytes to read than while it was open.
    last = -2 if {source.kv_format, target.kv_format} & SEALED_FORMATS else None
    assert all(new >= old for old, new in zip(figures(before)[:last], figures(after)[:last], strict=True))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.lists(CLASSES.map(lambda c: replace(c, reproducible=False)), max_size=4).map(tuple), min_size=1, max_size=4
    )
)
def test_converted_bytes_are_pages_of_the_targets_format(groups: list[tuple[SessionClass, ...]]) -> None:
    long_enough = change()
    long_enough = replace(long_enough, target=replace(long_enough.target, max_model_len=10**9))
    settings = RollSettings(allow=(WayOn.CONVERT, WayOn.FINISH))
    found = price(PriceAsk(long_enough, tuple(groups), settings=settings, rates=_STILL))
    pages = sum(c.pages for g in groups for c in g)
    size = kv_format("int8").page_bytes(layers=30, kv_heads=3, head_dim=64)
    assert found.way(WayOn.CONVERT).bytes == found.bytes_to_move == pages * size
    assert found.tokens_to_replay == 0


def test_the_newest_pages_go_to_a_sealed_format_as_open_ones() -> None:
    groups = ((sessions(3, 1000, 5000), sessions(2, 40, 5000)),)
    settings = RollSettings(allow=(WayOn.CONVERT, WayOn.FINISH))
    found = price(PriceAsk(change(kv="kivi4"), groups, settings=settings, rates=_STILL))
    sealed, opened = (kv_format(name).page_bytes(layers=30, kv_heads=3, head_dim=64) for name in ("kivi4", "bf16"))
    assert found.bytes_to_move == 3 * (5 * opened + 27 * sealed) + 2 * 2 * opened


def test_a_kv_change_converts_in_one_hop_and_a_weights_change_replays_at_the_end() -> None:
    groups = ((sessions(4, 320, 2000),), (sessions(6, 640, 2000),), (sessions(2, 960, 2000),))
    kv = price(PriceAsk(change(), groups, rates=_STILL))
    assert (kv.held, kv.sessions, kv.way(WayOn.CONVERT).sessions) == (12, 12, 12)
    weights = price(PriceAsk(change(weights="int8", kv="bf16"), groups, rates=_STILL))
    # 4 hop off group 0; group 1 sends its own 6 on and replays those 4; group 2 replays what it holds.
    assert weights.way(WayOn.EXACT).sessions == weights.way(WayOn.EXACT).hops == 10
    assert weights.way(WayOn.REPLAY).sessions == weights.sessions == 12
    assert weights.tokens_to_replay == 4 * 320 + 6 * 640 + 2 * 960
    assert weights.held == 22


def test_what_does_not_fit_is_a_blocker_with_the_arithmetic() -> None:
    wide = replace(
        change(kv="fp32"), after=replace(ASKED, precision=Precision(kv_cache="fp32"), kv_memory_bytes=8 << 20)
    )
    found = price(PriceAsk(wide, ((sessions(2, 100, 100),),)))
    assert not found.fit.fits
    assert found.blockers[0][0] is Blocker.DOES_NOT_FIT
    assert "would fit" in found.blockers[0][1]
    assert found.benefit.sessions_ratio is None
    full = replace(
        change(kv="fp32"),
        after=replace(ASKED, precision=Precision(kv_cache="fp32"), max_model_len=1024, kv_memory_bytes=64 << 20),
    )
    held = price(PriceAsk(full, ((sessions(40, 900, 100),),)))
    assert "pages are held now" in held.fit.problem


def test_sessions_without_a_way_on_are_named() -> None:
    found = price(
        PriceAsk(
            change(), ((sessions(3, 100, 100, reproducible=True),),), settings=RollSettings(allow=(WayOn.CONVERT,))
        )
    )
    assert found.way(None).sessions == 3
    assert found.blockers == ((Blocker.NO_WAY_ON, "3 sessions have no way on among Convert: their drain would wait"),)


def test_the_benefit_follows_the_format_table() -> None:
    found = price(PriceAsk(change(), ((sessions(8, 1000, 100),),)))
    ratio = (2 * 64 + 8) / (4 * 64)
    assert found.benefit.kv_bytes_after / found.benefit.kv_bytes_before == pytest.approx(ratio)
    assert found.benefit.weights_bytes_after == found.benefit.weights_bytes_before
    assert found.benefit.sessions_ratio == pytest.approx(1 / ratio, rel=0.1)
    assert 0.5 < found.benefit.bytes_per_step_ratio < 1


WISH = Wish("file:///m", Precision(), image="kvroll:1")


def worker(group: int, revision: str, *classes: SessionClass, **facts: Any) -> PlacedWorker:
    return PlacedWorker(group, revision, WorkerFacts(HERE, SHAPE, ASKED, 737280, 700, classes, **facts), 12.0)


NEW = replace(WISH, precision=Precision(kv_cache="int8"))


def gathered(*workers: PlacedWorker, new: Wish = NEW) -> PriceAsk:
    ask = gather(workers, {"a": WISH, "b": new}, "b", order=[1, 0, 2], settings=RollSettings())
    assert ask is not None
    return ask


def test_the_question_takes_groups_in_order_and_says_what_is_measured() -> None:
    one, two = sessions(1, 10, 10), sessions(2, 20, 20)
    ask = gathered(worker(0, "a", one, step_seconds=0.1), worker(1, "a", two, step_seconds=0.3), worker(2, "b"))
    assert (ask.groups, ask.settled) == (((two,), (one,)), 1)
    assert ask.rates.step_seconds.value == pytest.approx(0.2)
    assert ask.rates.step_seconds.source is RateSource.MEASURED
    assert ask.rates.start_seconds == Rate(12.0, RateSource.MEASURED)
    assert ask.rates.prefill_token_seconds.source is RateSource.ASSUMED
    assert "quality unmeasured" in ask.warnings[0]
    assert price(ask).way(WayOn.CONVERT).sessions == 3


def test_pages_that_sessions_share_are_counted_once() -> None:
    held = worker(0, "a", sessions(4, 320, 10), sessions(2, 640, 10), pages_held=40)
    assert [c.pages for c in gathered(held).groups[1]] == [20, 20]
    more = worker(0, "a", sessions(4, 320, 10), pages_held=90)
    assert gathered(more).groups[1][0].pages == 40


def test_another_checkpoint_or_image_is_not_taken_for_the_same_model() -> None:
    held = worker(0, "a", sessions(1, 10, 10))
    other_model = gathered(held, worker(1, "a"), worker(2, "a"), new=replace(WISH, model_uri="file:///n"))
    found = price(replace(other_model, settings=RollSettings(allow=(WayOn.REPLAY, WayOn.FINISH))))
    # Within the old revision a session can still be moved; the last group's cannot.
    assert found.way(WayOn.FINISH).sessions == 1
    other_image = gathered(held, worker(1, "b"), worker(2, "b"), new=replace(WISH, image="kvroll:2"))
    assert price(other_image).way(WayOn.CONVERT).sessions == 1


def test_without_a_worker_that_answers_there_is_no_price() -> None:
    assert gather([], {"b": WISH}, "b", order=[0], settings=RollSettings()) is None
    settled = [worker(0, "b")]
    assert gather(settled, {"b": WISH}, "b", order=[0], settings=RollSettings()) is None


def test_rates_that_differ_between_workers_give_a_range_of_seconds() -> None:
    """A worker beside a busy neighbour: one figure would be wrong for both."""
    busy, quiet = (
        replace(
            worker(group, "a", sessions(4, 2000, 500), step_seconds=step, prefill_token_seconds=token),
            start_seconds=start,
        )
        for group, step, token, start in ((0, 0.3, 0.02, 60.0), (1, 0.1, 0.005, 20.0))
    )
    found = price(gathered(busy, quiet))
    assert found.seconds_range is not None
    low, high = found.seconds_range
    assert low < found.seconds < high
    assert low == pytest.approx(price(gathered(*(replace(quiet, group=g) for g in (0, 1)))).seconds)
    assert high == pytest.approx(price(gathered(*(replace(busy, group=g) for g in (0, 1)))).seconds)


def test_workers_that_agree_or_one_alone_give_no_range() -> None:
    alike = [worker(g, "a", sessions(4, 2000, 500), step_seconds=s) for g, s in ((0, 0.100), (1, 0.110))]
    assert price(gathered(*alike)).seconds_range is None
    assert price(gathered(alike[0])).seconds_range is None


@settings(deadline=None, max_examples=60)
@given(_ASKS, st.floats(1.0, 5.0))
def test_the_range_holds_the_figure(ask: PriceAsk, ratio: float) -> None:
    def spread(rate: Rate) -> Rate:
        return Rate(rate.value, rate.source, rate.value / ratio, rate.value * ratio)

    rates = ask.rates
    wide = Rates(
        spread(rates.step_seconds),
        spread(rates.prefill_token_seconds),
        spread(rates.move_bytes_per_second),
        spread(rates.start_seconds),
    )
    found = price(replace(ask, rates=wide))
    if found.seconds_range is None:
        assert ratio**2 < 1.26
    else:
        assert found.seconds_range[0] <= found.seconds <= found.seconds_range[1]
