"""A session that lost its pages emits what it would have emitted, whether it recomputes, is copied back or finds its prefix."""

from collections.abc import Mapping

import pytest

from kvroll_worker.request import EnginePhase
from tests.worker.precisions import each_precision
from tests.worker.test_engine_equalities import SEEDED, alone, move
from tests.worker.tiny_model import MakeEngine, collect, prompt_of, state_of

WAYS: dict[str, dict[str, object]] = {
    "recompute": {"prefix_cache": "Off"},
    "spill": {"prefix_cache": "Off", "spill_memory_bytes": 1 << 20},
    "cached": {"prefix_cache": "On"},
    "both": {"prefix_cache": "On", "spill_memory_bytes": 1 << 20},
}


@each_precision
@pytest.mark.parametrize(
    "way", ["recompute", "both", *(pytest.param(w, marks=pytest.mark.slow) for w in ("spill", "cached"))]
)
@pytest.mark.fast_where(way="both")
def test_preempted_and_resumed_equals_undisturbed(
    make_engine: MakeEngine, weights: str, kv_cache: str, way: str
) -> None:
    config = {"weights": weights, "kv_cache": kv_cache}
    prompts = {f"s{n}": prompt_of(28, seed=n) for n in range(4)}
    engine = make_engine(**config, **WAYS[way], pages=8)
    for session_id, prompt in prompts.items():
        engine.submit(state_of(session_id, prompt, **{**SEEDED, "max_tokens": 60}))
    together = collect(engine)
    stats = engine.stats()
    assert stats.preemptions_total > 0
    assert (stats.spills_total > 0) == ("spill_memory_bytes" in WAYS[way])
    assert (stats.pages_free, stats.spilled_bytes) == (stats.pages_total, 0)
    for session_id, prompt in prompts.items():
        undisturbed = alone(make_engine, prompt, {**SEEDED, "max_tokens": 60}, **config, prefix_cache="Off")
        assert together[session_id] == undisturbed


def preempted_once(make_engine: MakeEngine, way: Mapping[str, object]) -> int:
    """Tokens that are computed when one session is preempted in its middle."""
    engine = make_engine(**way)
    engine.submit(state_of("a", prompt_of(100), max_tokens=20))
    collect(engine, steps=10)
    engine.scheduler.preempt(engine.held["a"])
    engine.check_integrity()
    assert engine.phase("a") is EnginePhase.WAITING
    collect(engine)
    return engine.stats().prefill_tokens_total


def test_what_coming_back_costs(make_engine: MakeEngine) -> None:
    computed = {way: preempted_once(make_engine, config) for way, config in WAYS.items()}
    ids_then = 100 + 9  # the first token comes with the second step: a step computes 64 rows
    # The last id is computed in any case: its row samples.
    assert computed == {"recompute": 100 + ids_then, "spill": 101, "cached": 100 + ids_then - 96, "both": 101}


def test_what_does_not_fit_is_recomputed(make_engine: MakeEngine) -> None:
    page_bytes = make_engine().stats().page_bytes
    assert preempted_once(make_engine, {**WAYS["spill"], "spill_memory_bytes": 3 * page_bytes}) == 100 + 109
    assert preempted_once(make_engine, {**WAYS["spill"], "spill_memory_bytes": 4 * page_bytes}) == 101


def test_a_spilled_session_can_be_cancelled_and_moved(make_engine: MakeEngine) -> None:
    whole = alone(make_engine, prompt_of(70), SEEDED, prefix_cache="Off")
    engine, target = make_engine(**WAYS["spill"]), make_engine()
    for name in "ab":
        engine.submit(state_of(name, prompt_of(70), **SEEDED))
    emitted = collect(engine, steps=6)
    for name in "ab":
        engine.scheduler.preempt(engine.held[name])
    engine.cancel("b")
    assert engine.stats().spilled_bytes == 3 * engine.stats().page_bytes
    assert engine.num_kv_tokens("a") == 0
    move(engine, target, "a")
    assert engine.stats().spilled_bytes == 0
    assert emitted["a"] + collect(target)["a"] == whole


def test_converted_kv_comes_back_as_it_was_although_its_ids_are_cached(make_engine: MakeEngine) -> None:
    source, target = make_engine(), make_engine(**WAYS["both"])
    for engine in (source, target):
        engine.submit(state_of("a", prompt_of(70), max_tokens=30))
    source.submit(state_of("other", prompt_of(70, seed=1), max_tokens=30))
    collect(source, steps=4)
    collect(target)
    source.held["a"].state.kv_converted = True
    source.freeze("a")
    pages = [source.read_page("other", index, "bf16") for index in range(3)]  # other numbers than the ids would give
    target.reserve("a", 3)
    for index, data in enumerate(pages):
        target.write_page("a", index, data, None)
    target.restore(source.snapshot("a"), source.num_kv_tokens("a"))
    target.release("a")
    target.scheduler.preempt(target.held["a"])
    collect(target, steps=1)
    assert [target.read_page("a", index, "bf16") for index in range(2)] == pages[:2]
    assert target.stats().prefix_resumed_total == 0
