"""Pages outside every layer's window are given back; nobody's tokens change by it, and nothing can be had of a page that is gone."""

import pytest

from kvroll_core.budget import BudgetError, PageWindow
from kvroll_kernels.dispatch import native_is_built
from kvroll_worker.engine.engine import Engine
from kvroll_worker.move.target.landing import restore
from kvroll_worker.move.target.reservations import ArrivedSession
from kvroll_worker.request import DoesNotFitError, EngineError, EnginePhase, SessionFailure
from tests.worker.paper_engine import keeping_all
from tests.worker.tiny_model import MakeEngine, MakeModel, Trace, collect, prompt_of, state_of

MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
MIXED = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "use_sliding_window": True,
    "sliding_window": 33,
    "layer_types": ["sliding_attention", "full_attention"],
}
SEEDED: dict[str, object] = {"temperature": 0.9, "top_p": 0.95, "seed": 11, "max_tokens": 40}
PROMPTS = {f"s{n}": prompt_of(length, seed=n) for n, length in enumerate((3, 31, 33, 64, 90, 150))}
each_window = pytest.mark.parametrize("window", [1, 31, 32, 33])


@pytest.fixture(autouse=True)
def _native_where_it_is_built(ops_name: str) -> None:
    """Books are the same over any kernels, and tests/kernels holds the windows of each to its law."""
    if ops_name == "reference" and native_is_built():
        pytest.skip("pages are counted over the native kernels")


def traces(engine: Engine, preempt_every: int = 0) -> dict[str, Trace]:
    """What the sessions emit; every so many steps the one that is served first is preempted."""
    for name, prompt in PROMPTS.items():
        engine.submit(state_of(name, prompt, **SEEDED))
    found: dict[str, Trace] = {name: [] for name in PROMPTS}
    while engine.has_work():
        for name, trace in collect(engine, steps=preempt_every or None).items():
            found[name] += trace
        if running := engine.scheduler.running:
            engine.scheduler.preempt(running[0])
            engine.check_integrity()
    stats = engine.stats()
    assert (stats.pages_free, stats.spilled_bytes) == (stats.pages_total, 0)
    return found


@pytest.mark.slow
@each_window
def test_with_freeing_equals_without(make_engine: MakeEngine, make_model: MakeModel, window: int) -> None:
    """In batches and chunks, on a full pool with and without spilling, with and without the prefix cache."""
    common = {"model": make_model(**MISTRAL, sliding_window=window), "max_model_len": 256}
    keeping = keeping_all(make_engine(**common))
    whole = traces(keeping)
    assert keeping.stats().window_pages_freed_total == 0
    configs: list[dict[str, object]] = [
        {},
        {"max_batch_tokens": 7, "max_sessions": 7},
        {"pages": 5, "max_batch_tokens": 16},
        {"pages": 5, "max_batch_tokens": 16, "spill_memory_bytes": 6 * 8192},
        {"prefix_cache": "Off"},
    ]
    for config in configs:
        full = "pages" in config
        engine = make_engine(**common, **config)
        assert traces(engine, preempt_every=17 if full else 0) == whole
        assert engine.stats().window_pages_freed_total > len(PROMPTS)
        assert (engine.stats().preemptions_total > 4) == full
        assert (engine.stats().spills_total > 4) == ("spill_memory_bytes" in config)


@each_window
def test_a_session_never_holds_more_than_its_windows_see(
    make_engine: MakeEngine, make_model: MakeModel, window: int
) -> None:
    engine = make_engine(model=make_model(**MISTRAL, sliding_window=window), max_model_len=512, max_batch_tokens=16)
    engine.submit(state_of("a", prompt_of(300), **SEEDED))
    most = engine.planned.window.session_pages(340)
    held = []
    while engine.has_work():
        engine.step()
        held.append(engine.stats().pages_total - engine.stats().pages_free)
        engine.check_integrity()
    assert max(held) == most < 5
    assert engine.stats().window_pages_freed_total >= 300 // 32 - most


@pytest.mark.slow
@each_window
def test_a_prompt_longer_than_the_pool_is_served(make_engine: MakeEngine, make_model: MakeModel, window: int) -> None:
    model, prompt = make_model(**MISTRAL, sliding_window=window), prompt_of(700)
    sampling = {**SEEDED, "logprobs": 3}
    big = keeping_all(make_engine(model=model, max_model_len=1024, max_batch_tokens=32, pages=40))
    big.submit(state_of("a", prompt, **sampling))
    pages = PageWindow(window, 32).session_pages(740)
    small = make_engine(model=model, max_model_len=1024, max_batch_tokens=32, pages=pages)
    assert pages * 32 < len(prompt) / 4
    small.submit(state_of("a", prompt, **sampling))
    small.submit(
        state_of("b", prompt, **{**sampling, "seed": 3})
    )  # one after the other, or by turns: there is room for one
    found = collect(small)
    assert found["a"] == collect(big)["a"]
    assert len(found["b"]) == 40
    assert small.stats().pages_free == pages
    with pytest.raises(BudgetError, match=f"needs {pages} pages"):
        make_engine(model=model, max_model_len=1024, max_batch_tokens=32, pages=pages - 1)


def test_what_does_not_fit_is_refused_with_the_pages_at_once(make_engine: MakeEngine, make_model: MakeModel) -> None:
    engine = make_engine(
        model=make_model(**MISTRAL, sliding_window=64), max_model_len=1024, max_batch_tokens=16, pages=5
    )
    engine.pool.num_pages = 4  # as if the pool had come out smaller than the budget
    with pytest.raises(
        DoesNotFitError, match=r"540 tokens need 4 pages of 17 at once \(windows of 64 tokens\), there are 3"
    ):
        engine.submit(state_of("a", prompt_of(500), **SEEDED))


def test_one_layer_that_looks_back_on_everything_keeps_every_page(
    make_engine: MakeEngine, make_model: MakeModel
) -> None:
    engine = make_engine(model=make_model(**MIXED), max_model_len=512)
    engine.submit(state_of("a", prompt_of(300), **SEEDED))
    collect(engine, steps=20)
    assert engine.stats().pages_total - engine.stats().pages_free == 10
    assert engine.stats().window_pages_freed_total == 0
    with pytest.raises(BudgetError, match="needs 16 pages"):
        make_engine(model=make_model(**MIXED), max_model_len=512, pages=15)


def move(source: Engine, target: Engine, session_id: str) -> None:
    """The state and the pages that are held, as a move carries them; the target keeps no room for others."""
    source.freeze(session_id)
    state, covered = source.snapshot(session_id), source.num_kv_tokens(session_id)
    first, end = source.planned.window.first_page(covered), -(-covered // 32)
    if first:
        with pytest.raises(EngineError, match="outside every layer's window"):
            source.read_page(session_id, first - 1, "bf16")
    target.reserve(session_id, end, first)
    assert target.stats().pages_total - target.stats().pages_free == end - first
    if first:
        with pytest.raises(EngineError, match="reserved as absent"):
            target.write_page(session_id, first - 1, bytes(target.stats().page_bytes), None)
    for index in range(first, end):
        target.write_page(session_id, index, source.read_page(session_id, index, "bf16"), None)
    target.restore(state, covered)
    target.check_integrity()
    assert target.phase(session_id) is EnginePhase.HELD
    source.cancel(session_id)
    source.check_integrity()
    target.release(session_id)


@pytest.mark.slow
@each_window
@pytest.mark.parametrize("length", [50, 300])
def test_moved_equals_undisturbed_at_every_token(
    make_engine: MakeEngine, make_model: MakeModel, window: int, length: int
) -> None:
    config = {"model": make_model(**MISTRAL, sliding_window=window), "max_model_len": 512, "max_batch_tokens": 64}
    undisturbed = keeping_all(make_engine(**config))
    undisturbed.submit(state_of("a", prompt_of(length), **SEEDED))
    whole = collect(undisturbed)["a"]
    engines = [make_engine(**config), make_engine(**config)]
    engines[0].submit(state_of("a", prompt_of(length), **SEEDED))
    emitted: Trace = []
    while len(emitted) < len(whole):
        emitted += collect(engines[0], steps=1).get("a", [])  # while it prefills too
        if len(emitted) < len(whole):
            move(engines[0], engines[1], "a")
            engines.reverse()
    assert emitted == whole


def test_a_session_that_comes_with_too_few_pages_is_refused(make_engine: MakeEngine, make_model: MakeModel) -> None:
    engine = make_engine(model=make_model(**MISTRAL, sliding_window=33), max_model_len=256)
    engine.reserve("a", 5, 4)
    with pytest.raises(EngineError, match="KV of 140 tokens to come with its pages from 3 on, found them from 4 on"):
        engine.restore(state_of("a", prompt_of(150), **SEEDED), 140)
    engine.check_integrity()
    engine.cancel("a")
    assert engine.stats().pages_free == engine.stats().pages_total


def test_a_manifest_that_leaves_out_a_page_that_is_needed_is_refused(
    make_engine: MakeEngine, make_model: MakeModel
) -> None:
    engine = make_engine(model=make_model(**MISTRAL, sliding_window=33), max_model_len=256)
    state = state_of("a", prompt_of(150), **SEEDED)
    engine.reserve("a", 5)
    arrival = ArrivedSession(state, dict.fromkeys(range(5), b"hash"))
    with pytest.raises(EngineError, match="expected pages from 3 on, which a layer here still looks at, found 4 on"):
        restore(engine, arrival, state, [b"hash"], 140, 4)
    assert restore(engine, arrival, state, [b"hash"] * 2, 140, 3) == []
    engine.check_integrity()


def test_what_the_window_passed_on_the_way_never_came_and_is_never_shared(
    make_engine: MakeEngine, make_model: MakeModel
) -> None:
    """The source decoded on while it was copied: pages that were reserved at first are not sent any more."""
    config = {"model": make_model(**MISTRAL, sliding_window=33), "max_model_len": 512, "prefix_cache": "On"}
    source, target, prompt = make_engine(**config), make_engine(**config), prompt_of(200)
    source.submit(state_of("a", prompt, **SEEDED))
    emitted = collect(source, steps=6)["a"]
    source.freeze("a")
    covered = source.num_kv_tokens("a")
    target.reserve("a", 7)
    for index in (5, 6):
        target.write_page("a", index, source.read_page("a", index, "bf16"), None)
    target.restore(source.snapshot("a"), covered)
    target.check_integrity()
    assert target.stats().pages_total - target.stats().pages_free == 2
    target.release("a")
    whole = emitted + collect(target)["a"]
    target.submit(state_of("b", prompt, **SEEDED))
    assert collect(target)["b"] == whole


def test_a_session_that_owes_prompt_logprobs_lands_without_its_first_pages(
    make_engine: MakeEngine, make_model: MakeModel
) -> None:
    config = {"model": make_model(**MISTRAL, sliding_window=33), "max_model_len": 256, "max_batch_tokens": 64}
    sampling = {**SEEDED, "prompt_logprobs": 0}
    undisturbed, source, target = (make_engine(**config) for _ in range(3))
    for engine in (undisturbed, source):
        engine.submit(state_of("a", prompt_of(150), **sampling))
    assert collect(source, steps=2) == {}
    move(source, target, "a")
    assert collect(target)["a"] == collect(undisturbed)["a"]


def test_a_hit_takes_only_the_pages_that_the_windows_see(make_engine: MakeEngine, make_model: MakeModel) -> None:
    config = {"model": make_model(**MISTRAL, sliding_window=33), "max_model_len": 512, "prefix_cache": "On"}
    engine, prompt = make_engine(**config), prompt_of(200)
    engine.submit(state_of("a", prompt, **SEEDED))
    whole = collect(engine)["a"]
    assert engine.stats().pages_cached == 7
    engine.submit(state_of("b", prompt, **SEEDED))
    found = collect(engine, steps=1)["b"]
    stats = engine.stats()
    assert stats.prefix_hits_total == 192
    # Page 5 and the one under way; the five before and the seventh of the first session stay cached.
    assert (stats.pages_total - stats.pages_free, stats.pages_cached) == (2, 6)
    assert found + collect(engine)["b"] == whole


def test_when_the_first_page_goes_nothing_behind_it_is_found(make_engine: MakeEngine, make_model: MakeModel) -> None:
    config = {"model": make_model(**MISTRAL, sliding_window=33), "max_model_len": 512, "prefix_cache": "On"}
    engine, prompt = make_engine(**config), prompt_of(200)
    engine.submit(state_of("a", prompt, **SEEDED))
    emitted = collect(engine, steps=6)["a"]
    root = engine.paging.matched(engine.held["a"])[0]
    assert root not in engine.held["a"].pages
    engine.paging.cache.drop(root)
    assert engine.stats().pages_cached == 0
    emitted += collect(engine)["a"]
    assert engine.stats().pages_cached == 0  # the ids that lead to its newer pages are not known any more
    engine.submit(state_of("b", prompt, **SEEDED))
    assert collect(engine)["b"] == emitted
    assert engine.stats().prefix_hits_total == 0


def test_numbers_that_are_none_leave_the_cache_where_the_window_has_passed_too(
    make_engine: MakeEngine, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(model=make_model(**MISTRAL, sliding_window=33), max_model_len=512, prefix_cache="On")
    engine.submit(state_of("a", prompt_of(200), **SEEDED))
    collect(engine, steps=3)
    assert engine.stats().pages_cached > 0
    failure = SessionFailure("a", "nan", "not a number")
    monkeypatch.setattr(engine.emitter, "advance", lambda session, row: failure)
    assert engine.step() == [failure]
    assert engine.stats().pages_cached == 0
    engine.check_integrity()
