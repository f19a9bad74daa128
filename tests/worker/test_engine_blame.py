"""What goes wrong for one session ends that one by a typed failure; the others of its step emit what they would have without it."""

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvroll_worker.engine.engine import Engine
from kvroll_worker.engine.step.probe import PromptProbe
from kvroll_worker.engine.step.sampler import top_logprobs
from kvroll_worker.engine.text import emitter as emitter_module
from kvroll_worker.errors import EngineFault
from kvroll_worker.request import (
    DoesNotFitError,
    FailureCode,
    SessionFailure,
    SessionState,
    TokenEvent,
)
from tests.doubles.engine_settings import engine_config
from tests.worker.tiny_model import MakeEngine, MakeModel, Trace, collect, memory_for, prompt_of, state_of, trace_of

VOCAB = 264
NEIGHBOURS: dict[str, dict[str, Any]] = {
    "greedy": {"max_tokens": 12},
    "drawn": {"max_tokens": 12, "temperature": 0.9, "top_p": 0.9, "seed": 5, "repetition_penalty": 1.2},
}


def submit_neighbours(engine: Engine) -> None:
    for number, (name, sampling) in enumerate(NEIGHBOURS.items()):
        engine.submit(state_of(name, prompt_of(40, number), **sampling))


def run(engine: Engine) -> tuple[dict[str, Trace], list[SessionFailure]]:
    """Steps to the end, checking the books at each."""
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


@pytest.fixture
def undisturbed(make_engine: MakeEngine) -> dict[str, Trace]:
    engine = make_engine()
    submit_neighbours(engine)
    return collect(engine)


def plant(monkeypatch: pytest.MonkeyPatch, engine: Engine, stage: str) -> None:
    """Breaks one stage of a turn, for the session `sick` alone."""
    sick = engine.held["sick"]
    if stage == "text":
        monkeypatch.setattr(sick.text, "push", _raise)
    elif stage == "counts":
        monkeypatch.setattr(sick.counts, "seen", _raise)
    elif stage in ("sample", "adjusted", "output_digest"):
        monkeypatch.setattr(emitter_module, stage, _raise_for_seed(getattr(emitter_module, stage), 77))
    elif stage == "logprobs":
        monkeypatch.setattr(emitter_module, "top_logprobs", _raise_for_count(top_logprobs))
    elif stage == "prompt_logprobs":
        monkeypatch.setattr("kvroll_worker.engine.text.scorer.top_logprobs", _raise_for_count(top_logprobs))


def _raise(*_: Any) -> Any:
    raise ArithmeticError("planted")


def _raise_for_seed(real: Callable[..., Any], seed: int) -> Callable[..., Any]:
    def broken(*args: Any) -> Any:
        sick = any(getattr(one, "seed", None) == seed for one in args)
        return _raise() if sick or (real.__name__ == "output_digest" and len(args[0]) == 9) else real(*args)

    return broken


def _raise_for_count(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda row, token_id, count: _raise() if count == 7 else real(row, token_id, count)


@pytest.mark.parametrize(
    "stage", ["sample", "adjusted", "counts", "text", "logprobs", "prompt_logprobs", "output_digest"]
)
def test_a_failure_in_any_stage_of_a_turn_is_its_sessions_alone(
    make_engine: MakeEngine, undisturbed: dict[str, Trace], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    engine = make_engine()
    submit_neighbours(engine)
    sick = {"seed": 77, "logprobs": 7, "prompt_logprobs": 7, "presence_penalty": 0.5, "repetition_penalty": 1.1}
    engine.submit(state_of("sick", prompt_of(20, 9), max_tokens=9, temperature=0.7, **sick))
    plant(monkeypatch, engine, stage)
    traces, [failure] = run(engine)
    assert (failure.session_id, failure.code) == ("sick", FailureCode.SESSION_ERROR)
    assert "ArithmeticError: planted" in failure.message
    assert {name: traces[name] for name in NEIGHBOURS} == undisturbed
    assert engine.sessions() == {}
    assert engine.stats().pages_free == engine.stats().pages_total


def test_a_tokenizer_that_fails_on_its_tokens_ends_a_session(
    make_engine: MakeEngine, undisturbed: dict[str, Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    submit_neighbours(engine)
    engine.submit(state_of("sick", prompt_of(20, 9), max_tokens=5))
    monkeypatch.setattr(engine.held["sick"].text, "_tokenizer", SimpleNamespace(decode=_raise))
    traces, [failure] = run(engine)
    assert (failure.session_id, failure.code) == ("sick", FailureCode.SESSION_ERROR)
    assert traces == undisturbed


def test_a_probe_that_raises_ends_its_session(make_engine: MakeEngine, undisturbed: dict[str, Trace]) -> None:
    engine = make_engine()
    submit_neighbours(engine)
    engine.submit(state_of("sick", prompt_of(20, 9), max_tokens=1), probe=PromptProbe(range(3, 9), _raise))
    traces, [failure] = run(engine)
    assert (failure.session_id, failure.code) == ("sick", FailureCode.PROBE_FAILED)
    assert traces == undisturbed


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "extra", [{}, {"top_k": 1}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.5}, {"logit_bias": ((3, 100.0),)}]
)
def test_nothing_left_to_choose_ends_the_session_and_no_forbidden_token_is_emitted(
    make_engine: MakeEngine, undisturbed: dict[str, Trace], temperature: float, extra: dict[str, Any]
) -> None:
    engine = make_engine()
    submit_neighbours(engine)
    all_ids = tuple(range(VOCAB))
    sick = {"temperature": temperature, "min_tokens": 2, "max_tokens": 5, "stop_token_ids": all_ids, **extra}
    engine.submit(state_of("sick", prompt_of(20, 9), **sick))
    traces, [failure] = run(engine)
    assert (failure.session_id, failure.code) == ("sick", FailureCode.NOTHING_LEFT)
    assert "min_tokens 2" in failure.message
    assert traces == undisturbed


@pytest.mark.parametrize("extra", [{}, {"top_k": 5}, {"top_p": 1e-300}, {"min_p": 1.0}, {"temperature": 1e-44}])
def test_the_one_token_that_is_left_is_chosen(make_engine: MakeEngine, extra: dict[str, Any]) -> None:
    engine = make_engine()
    ids = tuple(i for i in range(VOCAB) if i != 100)
    settings = {"temperature": 1.0, "min_tokens": 3, "max_tokens": 3, "stop_token_ids": ids, "repetition_penalty": 0.01}
    engine.submit(state_of("a", prompt_of(20), **{**settings, **extra}))
    assert [token for token, *_ in collect(engine)["a"]] == [100, 100, 100]


def test_a_kernel_that_fails_in_mid_step_is_the_engines_fault(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    submit_neighbours(engine)
    collect(engine, steps=3)
    monkeypatch.setattr(engine.ops, "silu_mul", _raise)
    with pytest.raises(EngineFault, match="the forward pass: ArithmeticError: planted"):
        engine.step()


def test_a_kernel_that_fails_in_a_sessions_turn_is_the_engines_fault(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    engine.submit(state_of("a", prompt_of(20), prompt_logprobs=2))
    logits_of = engine.runner._logits_of
    monkeypatch.setattr(engine.runner, "_logits_of", lambda rows: _raise() if len(rows) > 1 else logits_of(rows))
    with pytest.raises(EngineFault, match="the logits: ArithmeticError: planted"):
        engine.step()


def test_books_that_do_not_balance_are_the_engines_fault(make_engine: MakeEngine) -> None:
    engine = make_engine()
    submit_neighbours(engine)
    collect(engine, steps=2)
    engine.pool.release(engine.held["greedy"].held_pages)
    with pytest.raises(EngineFault):
        engine.cancel("greedy")


_NUMBER = st.one_of(
    st.floats(width=64),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, -1, 1e-45, 1e-300, float("nan"), float("inf"), 2**31, 2**32, 2**64, 0.5, "1", None, True]),
)
_IDS = st.lists(st.one_of(st.integers(-2, VOCAB + 2), st.just(2**40)), max_size=6)
_GOOD = {
    "temperature": st.sampled_from([0.0, 1e-45, 1e-30, 0.3, 1.0, 2.0]),
    "top_p": st.sampled_from([5e-324, 1e-30, 0.1, 0.9, 1.0]),
    "top_k": st.sampled_from([0, 1, 2, 50, VOCAB, 2**31 - 1]),
    "min_p": st.sampled_from([0.0, 5e-324, 0.1, 1.0]),
    "seed": st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    "max_tokens": st.integers(1, 6),
    "min_tokens": st.integers(0, 3),
    "repetition_penalty": st.sampled_from([0.01, 0.5, 1.0, 100.0]),
    "presence_penalty": st.sampled_from([-2.0, 0.0, 2.0]),
    "frequency_penalty": st.sampled_from([-2.0, 0.0, 2.0]),
    "logprobs": st.sampled_from([None, 0, 20]),
    "prompt_logprobs": st.sampled_from([None, 0, 20]),
    "stop_token_ids": st.one_of(
        st.just(tuple(range(VOCAB))), st.lists(st.integers(0, VOCAB - 1), max_size=4).map(tuple)
    ),
    "logit_bias": st.dictionaries(
        st.integers(0, VOCAB - 1), st.sampled_from([-100.0, -0.0, 1e-40, 100.0]), max_size=4
    ).map(lambda one: tuple(sorted(one.items()))),
    "stop": st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=3), max_size=3).map(tuple),
    "ignore_eos": st.booleans(),
    "include_stop_str_in_output": st.booleans(),
    "echo": st.booleans(),
}
_WILD = {
    **{name: _NUMBER for name in _GOOD if name not in ("stop_token_ids", "logit_bias", "stop")},
    "stop_token_ids": _IDS.map(tuple),
    "logit_bias": st.lists(st.tuples(st.integers(-1, VOCAB), _NUMBER), max_size=3).map(tuple),
    "stop": st.lists(st.text(max_size=3), max_size=3).map(tuple),
}
_SAMPLING = st.one_of(
    st.fixed_dictionaries({}, optional=_GOOD),
    st.tuples(st.fixed_dictionaries({}, optional=_GOOD), st.sampled_from(sorted(_WILD)).flatmap(
        lambda name: st.tuples(st.just(name), _WILD[name])
    )).map(lambda pair: {**pair[0], pair[1][0]: pair[1][1]}),
    st.fixed_dictionaries({}, optional=_WILD),
)  # fmt: skip
_PROMPT = st.one_of(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40), _IDS)


@pytest.fixture(scope="module")
def fuzzed(make_model: MakeModel) -> Engine:
    config: dict[str, Any] = {"max_sessions": 8, "max_batch_tokens": 64, "max_model_len": 256, "threads": 1}
    return Engine(engine_config(make_model(), **config, kv_memory_bytes=memory_for("bf16", 64)))


@pytest.fixture(scope="module")
def expected(fuzzed: Engine) -> dict[str, Trace]:
    submit_neighbours(fuzzed)
    return collect(fuzzed)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(requests=st.lists(st.tuples(_PROMPT, _SAMPLING), min_size=1, max_size=3), at=st.integers(0, 6))
@pytest.mark.slow
def test_no_sampling_value_harms_a_neighbour(
    fuzzed: Engine,
    expected: dict[str, Trace],
    requests: list[tuple[list[int], dict[str, Any]]],
    at: int,
) -> None:
    """Whatever is asked for ends in tokens, a typed refusal or a typed failure that is not for want of a check."""
    submit_neighbours(fuzzed)
    traces = collect(fuzzed, steps=at)
    for number, (prompt, sampling) in enumerate(requests):
        with suppress(DoesNotFitError):
            fuzzed.submit(_state(f"wild{number}", prompt, sampling))
    rest, failures = run(fuzzed)
    for name in NEIGHBOURS:
        assert traces.get(name, []) + rest[name] == expected[name]
    assert {failure.code for failure in failures} <= {FailureCode.NOTHING_LEFT}
    assert fuzzed.sessions() == {}


def _state(name: str, prompt: list[int], sampling: dict[str, Any]) -> SessionState:
    return state_of(name, prompt, **{"max_tokens": 4, **sampling})


def test_no_token_outside_min_p_and_top_p_however_small(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit(state_of("a", prompt_of(20), temperature=1.0, top_p=1e-320, max_tokens=6))
    engine.submit(state_of("b", prompt_of(20), temperature=0.0, max_tokens=6))
    traces = collect(engine)
    assert [t[0] for t in traces["a"]] == [t[0] for t in traces["b"]]
    assert np.isfinite([p for t in traces["a"] for _, p in t[3]]).all()
