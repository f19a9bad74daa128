"""Teacher-forced runs: the rows are those of the engine, in any chunks, and they do read the cache of the format."""

import numpy as np
import pytest

from kvroll_core.precision.formats import KV_FORMATS
from kvroll_worker.engine.step.probe import PromptProbe
from kvroll_worker.engine.step.sampler import Row
from kvroll_worker.evaluate.forced import logprobs_of, recall
from kvroll_worker.evaluate.metrics import NotComparableError, compare
from kvroll_worker.evaluate.needles import haystack
from kvroll_worker.request import DoesNotFitError, EngineError, TokenEvent
from tests.worker.tiny_model import MakeEngine, prompt_of, state_of

TEXT = prompt_of(90)
NARROW = [name for name, entry in KV_FORMATS.items() if entry.built and entry.payload_bits < 16]


def test_the_rows_are_those_that_the_engine_samples_from(make_engine: MakeEngine) -> None:
    engine = make_engine()
    rows = logprobs_of(engine, TEXT)
    assert rows.shape == (len(TEXT) - 1, engine.tokenizer.vocab_size)
    assert not engine.sessions()
    for length in (1, 40, 89):
        engine.submit(state_of("a", TEXT[:length], max_tokens=1, logprobs=5))
        found: list[TokenEvent] = []
        while engine.has_work():
            found += [event for event in engine.step() if isinstance(event, TokenEvent)]
        for one in found[0].logprobs:
            assert rows[length - 1, one.token_id] == np.float32(one.logprob)


@pytest.mark.parametrize("chunk", [1, 7, 33])
def test_chunks_change_nothing(make_engine: MakeEngine, chunk: int) -> None:
    whole = logprobs_of(make_engine(max_batch_tokens=128), TEXT)
    assert np.array_equal(logprobs_of(make_engine(max_batch_tokens=chunk, max_sessions=1), TEXT), whole)


@pytest.mark.parametrize("kv_cache", NARROW)
def test_a_narrow_cache_is_seen(make_engine: MakeEngine, kv_cache: str) -> None:
    """An evaluation that never read the cache would give the very numbers of bf16."""
    base = logprobs_of(make_engine(), TEXT)
    found = compare(base, logprobs_of(make_engine(kv_cache=kv_cache), TEXT), TEXT[1:])
    assert found.kl_mean > 1e-6
    assert found.perplexity != compare(base, base, TEXT[1:]).perplexity


def test_a_probe_is_shown_its_positions_once_beside_others(make_engine: MakeEngine) -> None:
    engine = make_engine(max_batch_tokens=30)
    whole = logprobs_of(engine, TEXT)
    seen: list[tuple[int, int]] = []

    def take(position: int, row: Row) -> None:
        seen.append((position, int(row.argmax())))

    engine.submit(state_of("b", prompt_of(50, seed=3), prompt_logprobs=1))
    engine.submit(state_of("a", TEXT, max_tokens=2), probe=PromptProbe({0, 41, 88, 89}, take))
    events: list[TokenEvent] = []
    while engine.has_work():
        events += [event for event in engine.step() if isinstance(event, TokenEvent)]
    assert seen == [(position, int(whole[position].argmax())) for position in (0, 41, 88)]
    told = {event.session_id: event.prompt for event in events if event.index == 0}
    assert told["a"] is None, "a probe tells the client nothing"
    assert told["b"] is not None
    assert len(told["b"].tokens) == 50


def test_recall_asks_for_what_greedy_decoding_would_write(make_engine: MakeEngine) -> None:
    engine = make_engine(max_model_len=1024)
    made = haystack(engine.tokenizer.encode, 150, 0, (0.2, 0.8))
    found = recall(engine, made)
    for answer, one in zip(made.answers, found, strict=True):
        engine.submit(state_of("a", made.token_ids[: answer.first], max_tokens=answer.last - answer.first + 1))
        written = []
        while engine.has_work():
            written += [event.token_id for event in engine.step() if isinstance(event, TokenEvent)]
        assert one.hit == (written == made.token_ids[answer.first : answer.last + 1])
        assert one.depth == answer.depth


def test_what_cannot_be_scored_is_refused_and_leaves_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine()
    with pytest.raises(DoesNotFitError, match="max_model_len 256"):
        logprobs_of(engine, prompt_of(256))
    engine.submit(state_of("a", prompt_of(4)))
    with pytest.raises(EngineError, match="found 1"):
        logprobs_of(engine, TEXT)
    assert list(engine.sessions()) == ["a"]


def test_a_model_that_gives_no_numbers_is_refused(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()

    def broken(_: object) -> Row:
        return np.full((1, engine.tokenizer.vocab_size), np.nan, dtype=np.float32)

    monkeypatch.setattr(engine.runner, "forward", broken)
    with pytest.raises(NotComparableError, match="NonFiniteLogits"):
        logprobs_of(engine, TEXT[:3])
    assert not engine.sessions()
