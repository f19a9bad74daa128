"""Which rows a step computes, without any model."""

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroll_worker.engine.schedule.paging import Paging
from kvroll_worker.engine.schedule.scheduler import Chunk, Limits, Scheduler
from kvroll_worker.engine.session import EngineSession
from kvroll_worker.engine.text.detokenizer import TextStream
from kvroll_worker.kv.pool import PagePool
from kvroll_worker.request import Sampling, SessionState

NO_TEXT = cast(TextStream, None)


def session(name: str, prompt: int, arrival: int, max_tokens: int = 8, priority: int = 0) -> EngineSession:
    state = SessionState(name, "m", [1] * prompt, sampling=Sampling(max_tokens=max_tokens), priority=priority)
    return EngineSession(state, NO_TEXT, arrival)


def scheduler(pages: int = 32, **limits: int) -> Scheduler:
    defaults = {
        "max_sessions": 4,
        "max_batch_tokens": 64,
        "prefill_tokens_beside_decode": 16,
        "prefill_share_tokens": 32,
    }
    return Scheduler(Paging(PagePool(pages + 1)), Limits(**{**defaults, **limits}))


def run(scheduler: Scheduler) -> list[tuple[str, int, int, bool]]:
    """One step with a model that always answers token 1."""
    chunks: list[Chunk] = scheduler.schedule()
    for chunk in chunks:
        chunk.session.num_kv += chunk.length
        if chunk.samples:
            chunk.session.append(1)
            if len(chunk.session.state.output_token_ids) == chunk.session.state.sampling.max_tokens:
                scheduler.remove(chunk.session)
    return [(c.session.session_id, c.start, c.length, c.samples) for c in chunks]


def test_decode_rows_come_first_and_prefill_is_bounded_beside_them() -> None:
    s = scheduler()
    s.add(session("a", 10, 0))
    assert run(s) == [("a", 0, 10, True)]
    s.add(session("b", 40, 1))
    assert run(s) == [("a", 10, 1, True), ("b", 0, 16, False)]
    assert run(s) == [("a", 11, 1, True), ("b", 16, 16, False)]
    assert run(s) == [("a", 12, 1, True), ("b", 32, 8, True)]
    assert run(s) == [("a", 13, 1, True), ("b", 40, 1, True)]


def test_prompts_share_the_budget_in_order_of_arrival() -> None:
    s = scheduler()
    for arrival, name in enumerate("abc"):
        s.add(session(name, 30, arrival))
    assert run(s) == [("a", 0, 30, True), ("b", 0, 30, True), ("c", 0, 4, False)]


def test_a_big_prompt_at_the_head_is_not_overtaken() -> None:
    s = scheduler(pages=4)
    s.add(session("running", 32, 0))
    run(s)
    s.add(session("big", 96, 1))
    s.add(session("small", 1, 2))
    assert [row[0] for row in run(s)] == ["running"]


def test_the_youngest_is_preempted_and_comes_back_in_its_place() -> None:
    s = scheduler(pages=3)
    for arrival, name in enumerate("ab"):
        s.add(session(name, 31, arrival, max_tokens=12))
    run(s)  # a and b each hold a page; the spare one goes to a
    names = [tuple(row[0] for row in run(s)) for _ in range(30)]
    assert s.preemptions_total == 1
    assert names[1] == ("a",)
    assert not s.has_work()
    assert not s.running


def test_a_long_prompt_costs_the_others_no_step_and_a_bounded_one() -> None:
    s = scheduler(pages=600, max_sessions=8, max_batch_tokens=256, prefill_tokens_beside_decode=128)
    for arrival in range(3):
        s.add(session(f"d{arrival}", 20, arrival, max_tokens=60))
    run(s)
    for arrival in range(3, 6):
        s.add(session(f"long{arrival}", 5000, arrival))
    for _ in range(59):
        rows = run(s)
        assert [row[0] for row in rows[:3]] == ["d0", "d1", "d2"]
        assert sum(length for _, _, length, _ in rows) == 3 + 128


@pytest.mark.parametrize("length", [1, 32, 90])
@pytest.mark.parametrize("share", [8, 32])
def test_a_prompt_behind_long_ones_advances_in_every_step(length: int, share: int) -> None:
    s = scheduler(pages=400, max_sessions=8, max_batch_tokens=4 * share, prefill_share_tokens=share)
    for arrival in range(3):
        s.add(session(f"long{arrival}", 3000, arrival))
    run(s)
    s.add(session("short", length, 3))
    bound = -(-length // share)
    steps = [run(s) for _ in range(bound)]
    assert any(row[0] == "short" and row[3] for row in steps[-1])
    assert all(sum(row[2] for row in rows) == 4 * share for rows in steps)


def test_priority_goes_before_arrival_and_the_lowest_is_preempted() -> None:
    s = scheduler(pages=4, max_sessions=4)
    for arrival, (name, priority) in enumerate([("late", 5), ("usual", 0), ("urgent", -5)]):
        s.add(session(name, 31, arrival, max_tokens=40, priority=priority))
    assert [row[0] for row in run(s)] == ["urgent", "usual"]
    order = [tuple(row[0] for row in run(s)) for _ in range(120) if s.has_work()]
    last = {
        name: max(step for step, names in enumerate(order) if name in names) for name in ("urgent", "usual", "late")
    }
    assert last["urgent"] < last["usual"] < last["late"]
    assert not s.has_work()


def test_a_decoder_whose_page_an_extended_session_takes_has_no_row() -> None:
    s = scheduler(pages=3, max_sessions=3)
    held, young = session("held", 32, 0, max_tokens=40), session("young", 40, 1, max_tokens=20)
    held.hold = True
    for one in (held, young):
        s.add(one)
    run(s)
    assert not held.num_missing
    held.ids += [1] * 5
    held.hold = False
    assert [row[0] for row in run(s)] == ["held"]
    assert s.waiting == [young]


@pytest.mark.parametrize("flag", ["frozen", "hold", "parked"])
def test_what_is_moved_keeps_its_pages(flag: str) -> None:
    s = scheduler(pages=3)
    moved, other = session("moved", 32, 1), session("other", 20, 0, max_tokens=60)
    s.add(moved)
    s.add(other)
    run(s)
    setattr(moved, flag, True)
    pages = list(moved.pages)
    for _ in range(60):
        run(s)
    assert moved.pages == pages
    assert s.preemptions_total == 1
    assert s.waiting == [other]
    assert not s.has_work()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40), st.integers(-1, 1)), min_size=1, max_size=12),
    st.integers(5, 12),
    st.integers(1, 80),
    st.integers(1, 5),
)
def test_every_session_that_fits_finishes(
    requests: list[tuple[int, int, int]], pages: int, max_batch_tokens: int, max_sessions: int
) -> None:
    pool = PagePool(pages + 1)
    s = Scheduler(Paging(pool), Limits(max_sessions, max(max_batch_tokens, max_sessions), 16))
    wanted = [session(str(i), prompt, i, count, priority) for i, (prompt, count, priority) in enumerate(requests)]
    for one in wanted:
        s.add(one)
    steps = 0
    while s.has_work():
        assert run(s)
        pool.check_integrity(s.holders())
        assert s.slots_balance()
        steps += 1
        assert steps < 5000
    assert [len(one.state.output_token_ids) for one in wanted] == [count for _, count, _ in requests]
    assert pool.num_free == pages


def test_replays_come_one_after_the_other_and_prompts_of_users_keep_their_share() -> None:
    s = scheduler(pages=400, max_sessions=8, max_batch_tokens=64, prefill_share_tokens=8)
    for arrival in range(3):
        moving = session(f"moving{arrival}", 150, arrival)
        moving.hold = True
        s.add(moving)
    assert run(s) == [("moving0", 0, 64, False)]
    s.add(session("user", 100, 3))
    assert run(s) == [("moving0", 64, 56, False), ("user", 0, 8, False)]
    assert run(s)[:2] == [("moving0", 120, 29, False), ("moving1", 0, 27, False)]


def test_the_newest_tokens_of_a_moving_session_go_first() -> None:
    s = scheduler(pages=400, max_sessions=8, max_batch_tokens=64, prefill_tokens_beside_decode=16)
    early, caught_up = session("early", 500, 0), session("caught up", 40, 1)
    for one in (early, caught_up):
        one.hold = True
        s.add(one)
    early.frozen = True
    run(s)
    early.frozen = False
    for token_id in range(5):
        caught_up.append(token_id)
    rows = run(s)
    assert rows[0] == ("caught up", 39, 5, False)
    assert rows[1][0] == "early"
