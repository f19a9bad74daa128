"""A model that computes NaN or infinity for one session is told in every KV format, and shared with nobody."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvroll_core.precision.formats import KV_FORMATS
from kvroll_kernels.calls import KvWriteCall
from kvroll_worker.engine.engine import Engine
from kvroll_worker.request import FailureCode, SessionFailure, TokenEvent
from tests.worker.tiny_model import MakeEngine, Trace, collect, prompt_of, state_of, trace_of

FORMATS = [name for name, entry in KV_FORMATS.items() if entry.built]
SICK = 263  # an id that no other prompt has, and that nothing chooses
PROMPT = [*prompt_of(60, 3), SICK, *prompt_of(60, 4)]
LONG = prompt_of(90, 1)


@pytest.fixture
def ops_name() -> str:
    return "native"


def poison_embedding(engine: Engine, value: float) -> None:
    """The row of that id is no number, as it is in memory that was damaged after loading."""
    embed = engine.ops.embed

    def poisoned(table: Any, token_ids: Any, out: Any, rows: int) -> None:
        embed(table, token_ids, out, rows)
        engine.runner._x_array[:rows][np.asarray(token_ids.array[:rows]) == SICK, 5] = value

    engine.ops.embed = poisoned  # type: ignore[method-assign]


def poison_part(engine: Engine, first: int, width: int, value: float) -> None:
    """One element of K, V or the query of that id is, in the last layer."""
    kv_write, rows_of = engine.ops.kv_write, engine.runner._rows

    def poisoned(call: KvWriteCall, rows: int) -> None:
        if call.layer == 1:
            stride = call.row_stride
            array = call.qkv.array.reshape(-1)[: rows * stride].reshape(rows, stride)
            array[rows_of._token_ids[:rows] == SICK, first + width // 2] = value
        kv_write(call, rows)

    engine.ops.kv_write = poisoned  # type: ignore[method-assign]


Q, K = 64, 32  # widths of the tiny model's query and of its keys, and values
PARTS: dict[str, Callable[[Engine, float], None]] = {
    "embedding": poison_embedding,
    "query": lambda engine, value: poison_part(engine, 0, Q, value),
    "key": lambda engine, value: poison_part(engine, Q, K, value),
    "value": lambda engine, value: poison_part(engine, Q + K, K, value),
}


def run(engine: Engine) -> tuple[dict[str, Trace], list[SessionFailure]]:
    traces: dict[str, Trace] = {}
    failures: list[SessionFailure] = []
    while engine.has_work():
        for event in engine.step():
            if isinstance(event, TokenEvent):
                traces.setdefault(event.session_id, []).append(trace_of(event))
            else:
                failures.append(event)
        engine.check_integrity()
    return traces, failures


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kv_cache", FORMATS)
@pytest.mark.fast_where(kv_cache=("int8", "kivi4"))
def test_it_ends_the_session_by_a_typed_failure_and_leaves_nothing_behind(
    make_engine: MakeEngine, kv_cache: str, part: str
) -> None:
    engine = make_engine(kv_cache=kv_cache, pages=24)
    engine.submit(state_of("other", LONG))
    whole = collect(engine)
    for value in (float("nan"), float("inf"), float("-inf")):
        broken = make_engine(kv_cache=kv_cache, pages=24)
        PARTS[part](broken, value)
        broken.submit(state_of("sick", PROMPT, max_tokens=4))
        broken.submit(state_of("other", LONG))
        traces, [failure] = run(broken)
        assert (failure.session_id, failure.code) == ("sick", FailureCode.NON_FINITE)
        assert "at token 60;" in failure.message
        assert traces == whole
        # Its first page was found sound and is kept; a page with the token in it is not. What it wrote lies in free pages now.
        assert broken.stats().pages_free == broken.stats().pages_total
        assert broken.stats().pages_cached <= 5
        broken.submit(state_of("other", LONG))
        assert run(broken) == (whole, [])
        broken.submit(state_of("again", PROMPT, max_tokens=4))
        assert [one.session_id for one in run(broken)[1]] == ["again"]


def test_a_chunk_that_samples_nothing_is_looked_at_before_others_may_share_it(make_engine: MakeEngine) -> None:
    """The token stands in the first page, and its step ends before the prompt does."""
    engine = make_engine(max_batch_tokens=32, prefix_cache="On")
    poison_embedding(engine, float("nan"))
    prompt = [SICK, *prompt_of(100)]
    engine.submit(state_of("first", prompt))
    [event] = engine.step()
    assert isinstance(event, SessionFailure)
    engine.submit(state_of("second", prompt))
    assert engine.stats().prefix_hits_total == 0
    assert engine.stats().pages_cached == 0
    engine.step()
    assert engine.stats().prefix_hits_total == 0


def test_logits_alone_that_are_no_numbers_end_the_session(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    engine.submit(state_of("a", LONG, max_tokens=4))
    engine.submit(state_of("b", prompt_of(20, 5), max_tokens=4))
    collect(engine, steps=3)
    logits_of = engine.runner._logits_of

    def poisoned(rows: list[int]) -> Any:
        logits = logits_of(rows)
        logits[0, 17] = -np.inf  # not even the largest is touched
        return logits

    monkeypatch.setattr(engine.runner, "_logits_of", poisoned)
    events = engine.step()
    assert [type(event) for event in events] == [SessionFailure, TokenEvent]


def test_a_held_session_is_told_as_well(make_engine: MakeEngine) -> None:
    engine = make_engine()
    poison_embedding(engine, float("inf"))
    engine.submit(state_of("a", PROMPT), hold=True)
    _, [failure] = run(engine)
    assert failure.code == FailureCode.NON_FINITE
