"""Sessions that take each other's pages: what they emit does not change, what they compute does."""

from dataclasses import replace

import pytest
import structlog

from kvroll_core.precision.sealing import SEALED_FORMATS
from kvroll_worker.engine.engine import Engine
from kvroll_worker.kv.cache_switch import CacheSwitch
from kvroll_worker.kv.page_hash import content_hash
from kvroll_worker.request import PrecisionEpoch, TokenEvent
from kvroll_worker.serve.metrics import Metrics
from tests.worker.precisions import each_precision
from tests.worker.test_engine_equalities import SEEDED, alone, move
from tests.worker.tiny_model import MakeEngine, Trace, collect, prompt_of, state_of

COMMON = prompt_of(70, seed=9)


def run_one(engine: Engine, session_id: str, prompt: list[int], **sampling: object) -> Trace:
    engine.submit(state_of(session_id, prompt, **sampling))
    return collect(engine)[session_id]


def prefilled(engine: Engine) -> int:
    return engine.stats().prefill_tokens_total


@each_precision
@pytest.mark.parametrize("sampling", [{}, SEEDED], ids=["greedy", "seeded"])
def test_a_prefix_hit_equals_a_cold_run(
    make_engine: MakeEngine, weights: str, kv_cache: str, sampling: dict[str, object]
) -> None:
    config = {"weights": weights, "kv_cache": kv_cache}
    engine = make_engine(**config)
    run_one(engine, "first", COMMON)
    for tail in ([], [5], prompt_of(40, seed=2)):
        before = engine.stats()
        prompt = COMMON + tail
        hit = run_one(engine, "again", prompt, **sampling)
        after = engine.stats()
        asked, found = (0, 0) if kv_cache in SEALED_FORMATS else (len(prompt), 64)  # a sealed format takes no part
        assert after.prefix_hits_total - before.prefix_hits_total == found
        assert after.prefill_tokens_total - before.prefill_tokens_total == len(prompt) - found
        assert after.prefix_queries_total - before.prefix_queries_total == asked
        assert hit == alone(make_engine, prompt, sampling, **config, prefix_cache="Off")


@pytest.mark.parametrize("length", [31, 32, 33, 64, 65])
def test_at_least_one_token_is_computed(make_engine: MakeEngine, length: int) -> None:
    engine = make_engine()
    prompt = prompt_of(length)
    cold = run_one(engine, "a", prompt)
    before = prefilled(engine)
    assert run_one(engine, "b", prompt) == cold
    assert prefilled(engine) - before == length - (length - 1) // 32 * 32


def test_the_first_token_says_what_the_cache_had(make_engine: MakeEngine) -> None:
    engine = make_engine()
    told = []
    for name in ("a", "b"):
        engine.submit(state_of(name, prompt_of(70), max_tokens=3))
        while engine.has_work():
            told += [(e.session_id, e.index, e.cached_tokens) for e in engine.step() if isinstance(e, TokenEvent)]
    assert [t for t in told if t[2]] == [("b", 0, 64)]
    assert len(told) == 6


def test_what_was_generated_is_cached_too(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompt = prompt_of(20)
    emitted = run_one(engine, "a", prompt, max_tokens=50)
    turn = prompt + [one[0] for one in emitted] + prompt_of(7, seed=4)
    second = run_one(engine, "b", turn)
    assert engine.stats().prefix_hits_total == 64
    assert second == alone(make_engine, turn, {}, prefix_cache="Off")


@pytest.mark.parametrize("steps", [1, 2, 3, 6])
def test_a_cancelled_sessions_full_pages_stay(make_engine: MakeEngine, steps: int) -> None:
    engine = make_engine(max_batch_tokens=33)
    engine.submit(state_of("a", COMMON))
    collect(engine, steps=steps)
    engine.cancel("a")
    engine.check_integrity()
    found = min(33 * steps, 70) // 32 * 32
    stats = engine.stats()
    assert (stats.pages_free, stats.pages_cached) == (stats.pages_total, found // 32)
    assert run_one(engine, "b", COMMON) == alone(make_engine, COMMON, {}, prefix_cache="Off")
    assert engine.stats().prefix_hits_total == found


def test_tenants_do_not_share(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for name, salt in (("a", "x"), ("b", "y"), ("c", ""), ("d", "x")):
        engine.submit(replace(state_of(name, COMMON), cache_salt=salt))
        collect(engine)
    assert engine.stats().prefix_hits_total == 64


def test_prompt_logprobs_are_computed_and_never_read_from_the_cache(make_engine: MakeEngine) -> None:
    engine = make_engine()
    run_one(engine, "a", COMMON)
    before = prefilled(engine)
    engine.submit(state_of("b", COMMON, prompt_logprobs=1, echo=True))
    events = [event for _ in range(30) if engine.has_work() for event in engine.step()]
    assert prefilled(engine) - before == 70
    assert len(events[0].prompt.tokens) == 70  # type: ignore[union-attr]
    engine.check_integrity()
    assert engine.stats().prefix_hits_total == 0
    assert run_one(engine, "c", COMMON) == alone(make_engine, COMMON, {}, prefix_cache="Off")


@pytest.mark.parametrize("length", [64, 70, 200])
def test_n_choices_compute_their_prompt_once(make_engine: MakeEngine, length: int) -> None:
    engine = make_engine(max_batch_tokens=48)
    prompt = prompt_of(length)
    for n in range(6):
        engine.submit(state_of(f"n{n}", prompt, **{**SEEDED, "seed": n}))
    emitted = collect(engine)
    shared = (length - 1) // 32 * 32
    assert prefilled(engine) == shared + 6 * (length - shared)
    for n in range(6):
        assert emitted[f"n{n}"] == alone(make_engine, prompt, {**SEEDED, "seed": n}, prefix_cache="Off")


def test_a_stranger_does_not_wait_for_a_prefix_that_others_wait_for(make_engine: MakeEngine) -> None:
    engine = make_engine(max_batch_tokens=64)
    for n in range(3):
        engine.submit(state_of(f"n{n}", prompt_of(200), max_tokens=4))
    engine.submit(state_of("stranger", prompt_of(20, seed=3), max_tokens=4))
    # 8 of its 20 a step, while the first of the three computes what the other two wait for.
    assert list(collect(engine, steps=3)) == ["stranger"]
    assert engine.num_kv_tokens("n0") == 3 * 64 - 20
    assert engine.num_kv_tokens("n1") == 0


def test_off_caches_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine(prefix_cache="Off")
    for name in "ab":
        run_one(engine, name, COMMON)
    stats = engine.stats()
    assert (stats.pages_cached, stats.prefix_queries_total, stats.prefix_hits_total) == (0, 0, 0)
    assert (stats.prefill_tokens_total, stats.prompt_tokens_total) == (140, 140)


def test_a_full_pool_evicts_and_stays_right(make_engine: MakeEngine) -> None:
    engine = make_engine(pages=8)
    prompts = [prompt_of(100, seed=n % 3) for n in range(9)]
    for n, prompt in enumerate(prompts):
        assert run_one(engine, f"s{n}", prompt) == alone(make_engine, prompt, {}, prefix_cache="Off")
    stats = engine.stats()
    assert stats.evictions_total > 0
    assert stats.pages_free == stats.pages_total


def test_an_exactly_moved_sessions_pages_are_shared_and_converted_ones_are_not(make_engine: MakeEngine) -> None:
    cold = alone(make_engine, COMMON, {}, prefix_cache="Off")
    for converted in (False, True):
        source, target = make_engine(), make_engine()
        source.submit(state_of("a", COMMON))
        collect(source, steps=3)
        if converted:
            source.held["a"].state.kv_converted = True  # what a Convert before this Exact move left in the state
        move(source, target, "a")
        collect(target)
        assert source.stats().pages_cached == 2
        assert run_one(target, "b", COMMON) == cold
        assert target.stats().prefix_hits_total == (0 if converted else 64)


def test_pages_of_another_precision_are_never_shared(make_engine: MakeEngine) -> None:
    source, target = make_engine(kv_cache="bf16"), make_engine(kv_cache="int8")
    source.submit(state_of("a", COMMON))
    collect(source, steps=3)
    move(source, target, "a")
    collect(target)
    assert target.stats().pages_cached == 0
    assert run_one(target, "b", COMMON) == alone(make_engine, COMMON, {}, kv_cache="int8", prefix_cache="Off")


def test_a_converted_session_that_recomputes_shares_again(make_engine: MakeEngine) -> None:
    source, target = make_engine(), make_engine()
    source.submit(state_of("a", COMMON))
    collect(source, steps=3)
    state = replace(source.snapshot("a"), kv_converted=True)
    state.precision_epochs.append(PrecisionEpoch(3, "bf16", "bf16", "Replay"))
    target.submit(state)
    collect(target)
    assert target.stats().pages_cached == 2


def test_a_landing_shares_cached_pages_by_content(make_engine: MakeEngine) -> None:
    source, target = make_engine(), make_engine()
    whole = alone(make_engine, COMMON, {}, prefix_cache="Off")
    source.submit(state_of("a", COMMON))
    emitted = collect(source, steps=4)["a"]
    for session_id in ("a", "b"):
        state = replace(source.snapshot("a"), session_id=session_id)
        target.reserve(session_id, 3)
        for index in range(3):
            data = source.read_page("a", index, "bf16")
            content = content_hash(data) if index < 2 else None
            adopted = content is not None and target.adopt_page(session_id, index, content)
            assert adopted is (session_id == "b" and index < 2)
            if not adopted:
                target.write_page(session_id, index, data, content)
            target.check_integrity()
        target.restore(state, source.num_kv_tokens("a"))
        target.check_integrity()
        target.release(session_id)
        assert emitted + collect(target)[session_id] == whole


def test_auto_turns_itself_off_says_so_and_comes_back(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CacheSwitch, "WINDOW_TOKENS", 200)
    monkeypatch.setattr(CacheSwitch, "PAUSE_TOKENS", 400)
    engine = make_engine(prefix_cache="Auto")
    with structlog.testing.capture_logs() as logs:
        for n in range(10):
            run_one(engine, f"s{n}", prompt_of(70, seed=n), max_tokens=2)
            stats = engine.stats()
            assert stats.prefix_cache_on is (n < 2 or n >= 8)
            assert (stats.pages_cached > 0) is stats.prefix_cache_on
    assert [(log["event"], log["on"]) for log in logs] == [("prefix cache", False), ("prefix cache", True)]
    assert "hit rate 0.0" in logs[0]["why"]
    assert engine.stats().prefix_switches_total == 2
    assert run_one(engine, "again", prompt_of(70, seed=9)) == alone(make_engine, prompt_of(70, seed=9), {})
    assert engine.stats().prefix_hits_total == 64


def test_what_the_series_say(make_engine: MakeEngine) -> None:
    engine, metrics = make_engine(), Metrics("tiny")
    for name in "ab":
        run_one(engine, name, COMMON)
    engine.submit(state_of("c", COMMON))
    collect(engine, steps=2)
    metrics.engine.stats = engine.stats()

    def read(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels or {"model_name": "tiny"})

    states = {state: read("kvroll_kv_pages", state=state) for state in ("free", "cached", "pinned", "null")}
    assert states == {"free": 61, "cached": 0, "pinned": 3, "null": 1}
    assert read("vllm:kv_cache_usage_perc") == 3 / 64
    assert read("vllm:prefix_cache_queries_total") == read("kvroll_prefix_cache_queries_tokens_total") == 210
    assert read("vllm:prefix_cache_hits_total") == read("kvroll_prefix_cache_hits_tokens_total") == 128
    assert (read("vllm:prompt_tokens_total"), read("kvroll_prefill_tokens_total")) == (210, 82)
    assert (read("kvroll_prefix_cache_on"), read("kvroll_kv_page_evictions_total")) == (1, 0)
    assert read("vllm:num_requests_running") == 1
