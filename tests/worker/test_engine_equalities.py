"""The law of determinism: what a session emits depends on its own ids, parameters and precision, on nothing else."""

from copy import deepcopy

import pytest

from kvroll_core.precision.kv_form import SkipLayersError
from kvroll_worker.engine.config import cache_salt
from kvroll_worker.engine.engine import Engine
from kvroll_worker.kv.page_hash import content_hash
from kvroll_worker.request import EnginePhase
from tests.worker.precisions import each_precision
from tests.worker.tiny_model import MakeEngine, MakeModel, Trace, collect, prompt_of, state_of

KNOBS: list[dict[str, object]] = [
    {"weights": "int4", "weight_block": 32},
    {"weights": "int4", "weight_block": 128, "head": "int8"},
    {"weights": "fp32", "head": "int8"},
    {"kv_cache": "int8", "skip_layers": (1,)},
    {"kv_cache": "mxfp8", "skip_layers": (0,), "weights": "int8"},
]
each_knob = pytest.mark.parametrize("config", KNOBS, ids=str)
SEEDED: dict[str, object] = {"temperature": 0.9, "top_p": 0.95, "seed": 11}
SHAPES: dict[str, dict[str, object]] = {
    "full": {},
    "windows": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 31},
    "mixed windows, sinks, q/k norm": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "use_sliding_window": True,
        "sliding_window": 33,
        "layer_types": ["sliding_attention", "full_attention"],
        "attention_sinks": True,
    },
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
each_sampling = pytest.mark.parametrize("sampling", [{}, SEEDED], ids=["greedy", "seeded"])


def alone(make_engine: MakeEngine, prompt: list[int], sampling: dict[str, object], **config: object) -> Trace:
    engine = make_engine(**config)
    engine.submit(state_of("a", prompt, **sampling))
    return collect(engine)["a"]


@each_precision
@each_sampling
def test_batch_of_one_equals_batch_of_many(
    make_engine: MakeEngine, weights: str, kv_cache: str, sampling: dict[str, object]
) -> None:
    config = {"weights": weights, "kv_cache": kv_cache}
    prompts = {f"s{n}": prompt_of(5 + 17 * n, seed=n) for n in range(5)}
    engine = make_engine(**config)
    for session_id, prompt in prompts.items():
        engine.submit(state_of(session_id, prompt, **sampling))
    together = collect(engine)
    for session_id, prompt in prompts.items():
        assert together[session_id] == alone(make_engine, prompt, sampling, **config)


@each_precision
@pytest.mark.parametrize("chunk", [1, 7, 32, 33])
@pytest.mark.fast_where(chunk=33)
def test_chunk_size_changes_nothing(make_engine: MakeEngine, weights: str, kv_cache: str, chunk: int) -> None:
    config = {"weights": weights, "kv_cache": kv_cache}
    prompt = prompt_of(90)
    whole = alone(make_engine, prompt, SEEDED, **config, max_batch_tokens=128)
    assert alone(make_engine, prompt, SEEDED, **config, max_batch_tokens=chunk, max_sessions=1) == whole


@each_shape
@pytest.mark.parametrize("kv_cache", ["bf16", "kivi4"])
def test_attention_of_every_shape_obeys_the_law(
    make_engine: MakeEngine, make_model: MakeModel, shape: dict[str, object], kv_cache: str
) -> None:
    """Batch, chunks, preemption and replay at once, for every kind of attention; contexts on both sides of the windows."""
    common = {"model": make_model(**shape), "max_model_len": 128, "kv_cache": kv_cache}
    sampling = {**SEEDED, "max_tokens": 35}
    prompts = {f"s{n}": prompt_of(5 + 29 * n, seed=n) for n in range(4)}
    whole = {name: alone(make_engine, prompt, sampling, **common) for name, prompt in prompts.items()}
    configs: list[dict[str, object]] = [{}, {"max_batch_tokens": 7, "max_sessions": 7}, {"pages": 7}]
    for config in configs:
        engine = make_engine(**common, **config)
        for name, prompt in prompts.items():
            engine.submit(state_of(name, prompt, **sampling))
        found = collect(engine, steps=9)
        if "pages" in config:
            engine.scheduler.preempt(engine.scheduler.running[0])  # whatever else so few pages bring
        for name, traces in collect(engine).items():
            found[name] = found.get(name, []) + traces
        assert found == whole
        assert engine.stats().preemptions_total > 0 or "pages" not in config
    source, target = make_engine(**common), make_engine(**common)
    source.submit(state_of("a", prompts["s2"], **sampling))
    before = collect(source, steps=6)["a"]
    target.submit(source.snapshot("a"))
    assert before + collect(target)["a"] == whole["s2"]


@each_precision
@each_sampling
@pytest.mark.fast_where(sampling={})
def test_preempted_and_resumed_equals_undisturbed(
    make_engine: MakeEngine, weights: str, kv_cache: str, sampling: dict[str, object]
) -> None:
    config = {"weights": weights, "kv_cache": kv_cache}
    prompts = {f"s{n}": prompt_of(28, seed=n) for n in range(4)}
    engine = make_engine(**config, pages=8)
    for session_id, prompt in prompts.items():
        engine.submit(state_of(session_id, prompt, max_tokens=60, **sampling))
    together = collect(engine)
    assert engine.stats().preemptions_total > 0
    assert engine.stats().pages_free == engine.stats().pages_total
    for session_id, prompt in prompts.items():
        assert together[session_id] == alone(make_engine, prompt, {"max_tokens": 60, **sampling}, **config)


@each_precision
@each_sampling
@pytest.mark.parametrize("split", [1, 6, 19])
@pytest.mark.fast_where(split=6)
def test_replayed_equals_undisturbed(
    make_engine: MakeEngine, weights: str, kv_cache: str, sampling: dict[str, object], split: int
) -> None:
    config = {"weights": weights, "kv_cache": kv_cache}
    prompt = prompt_of(30)
    whole = alone(make_engine, prompt, sampling, **config)
    source = make_engine(**config)
    source.submit(state_of("a", prompt, **sampling))
    before = collect(source, steps=split)["a"]
    target = make_engine(**config)
    target.submit(source.snapshot("a"))
    assert before + collect(target)["a"] == whole


def move(source: Engine, target: Engine, session_id: str) -> None:
    """All pages and the state, as a move carries them."""
    source.freeze(session_id)
    state, covered = source.snapshot(session_id), source.num_kv_tokens(session_id)
    pages = -(-covered // 32)
    target.reserve(session_id, pages)
    for index in range(pages):
        data = source.read_page(session_id, index, target.config.precision.sealing.form(index, covered))
        target.write_page(session_id, index, data, None)
        assert target.read_back(session_id, index) == data
    target.restore(state, covered)
    assert target.phase(session_id) is EnginePhase.HELD
    assert target.is_held_ready(session_id)
    assert not target.has_work()
    source.cancel(session_id)
    target.release(session_id)


@each_precision
@each_sampling
def test_moved_equals_undisturbed_at_every_token(
    make_engine: MakeEngine, weights: str, kv_cache: str, sampling: dict[str, object]
) -> None:
    config = {"weights": weights, "kv_cache": kv_cache}
    prompt = prompt_of(50)
    whole = alone(make_engine, prompt, sampling, **config)
    engines = [make_engine(**config), make_engine(**config)]
    engines[0].submit(state_of("a", prompt, **sampling))
    emitted = collect(engines[0], steps=2 if kv_cache.startswith("kivi") else 1)["a"]  # those compute a page a step
    while len(emitted) < len(whole):
        move(engines[0], engines[1], "a")
        engines.reverse()
        engines[1].check_integrity()
        assert engines[1].stats().pages_free == engines[1].stats().pages_total
        emitted += collect(engines[0], steps=1)["a"]
    assert emitted == whole


@pytest.mark.parametrize("kv_cache", ["bf16", "kivi4"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_session_moved_while_it_prefills_equals_undisturbed(
    make_engine: MakeEngine, steps: int, kv_cache: str
) -> None:
    prompt = prompt_of(100)
    whole = alone(make_engine, prompt, SEEDED, kv_cache=kv_cache)
    source, target = make_engine(max_batch_tokens=30, kv_cache=kv_cache), make_engine(kv_cache=kv_cache)
    source.submit(state_of("a", prompt, **SEEDED))
    assert collect(source, steps=steps) == {}
    assert source.phase("a") is EnginePhase.PREFILL
    move(source, target, "a")
    assert collect(target)["a"] == whole


@each_precision
@each_sampling
def test_hold_extend_release_equals_undisturbed(
    make_engine: MakeEngine, weights: str, kv_cache: str, sampling: dict[str, object]
) -> None:
    config = {"weights": weights, "kv_cache": kv_cache}
    prompt = prompt_of(40)
    whole = alone(make_engine, prompt, sampling, **config)
    source, target = make_engine(**config), make_engine(**config)
    source.submit(state_of("a", prompt, **sampling))
    emitted = collect(source, steps=3)["a"]
    target.submit(source.snapshot("a"), hold=True)
    known = len(emitted)
    for steps in (1, 4, 2):
        assert collect(target) == {}
        assert target.is_held_ready("a")
        emitted += collect(source, steps=steps)["a"]
        target.extend("a", [trace[0] for trace in emitted[known:]])
        assert not target.is_held_ready("a")
        known = len(emitted)
    state = source.snapshot("a")
    assert collect(target) == {}
    assert target.snapshot("a") == state
    target.release("a")
    assert emitted + collect(target)["a"] == whole


def test_frozen_goes_on_where_it_stood(make_engine: MakeEngine) -> None:
    prompt = prompt_of(40)
    whole = alone(make_engine, prompt, SEEDED)
    engine = make_engine()
    engine.submit(state_of("a", prompt, **SEEDED))
    emitted = collect(engine, steps=4)["a"]
    engine.freeze("a")
    before = deepcopy(engine.snapshot("a"))
    assert not engine.has_work()
    assert engine.step() == []
    engine.submit(state_of("b", prompt_of(20, seed=3)))
    assert "a" not in collect(engine)
    assert engine.snapshot("a") == before
    engine.thaw("a")
    assert emitted + collect(engine)["a"] == whole


def test_pages_shared_by_content_are_the_same_pages(make_engine: MakeEngine) -> None:
    prompt = prompt_of(70)
    source, target = make_engine(), make_engine()
    whole = alone(make_engine, prompt, SEEDED)
    for session_id in ("a", "b"):
        source.submit(state_of(session_id, prompt, **SEEDED))
    emitted = collect(source, steps=6)
    for session_id in ("a", "b"):
        source.freeze(session_id)
        target.reserve(session_id, 3)
        for index in range(3):
            data = source.read_page(session_id, index, "bf16")
            content = content_hash(data) if index < 2 else None
            if content is None or not target.adopt_page(session_id, index, content):
                target.write_page(session_id, index, data, content)
        target.restore(source.snapshot(session_id), source.num_kv_tokens(session_id))
        target.check_integrity()
    assert target.stats().pages_total - target.stats().pages_free == 4
    for session_id in ("a", "b"):
        target.release(session_id)
    after = collect(target)
    assert [emitted[s] + after[s] for s in ("a", "b")] == [whole, whole]
    assert target.stats().pages_free == target.stats().pages_total


@each_knob
def test_the_knobs_of_a_precision_obey_the_law(make_engine: MakeEngine, config: dict[str, object]) -> None:
    """Batch, chunks and replay at once."""
    prompts = {f"s{n}": prompt_of(5 + 29 * n, seed=n) for n in range(3)}
    whole = {name: alone(make_engine, prompt, SEEDED, **config) for name, prompt in prompts.items()}
    engine = make_engine(**config, max_batch_tokens=7, max_sessions=7)
    for name, prompt in prompts.items():
        engine.submit(state_of(name, prompt, **SEEDED))
    assert collect(engine) == whole


def test_a_knob_that_changes_a_number_changes_the_salt_of_shared_pages(make_engine: MakeEngine) -> None:
    configs: list[dict[str, object]] = [{"weights": "int4"}, *KNOBS]
    engines = [make_engine(**config) for config in configs]
    assert len({cache_salt(engine.descriptor) for engine in engines}) == len(engines)
    assert cache_salt(make_engine(weight_block=32).descriptor) == cache_salt(make_engine().descriptor)


def test_layers_that_are_all_skipped_are_bf16(make_engine: MakeEngine) -> None:
    prompt = prompt_of(90)
    whole, skipped = (
        alone(make_engine, prompt, SEEDED, **c) for c in ({}, {"kv_cache": "int8", "skip_layers": (0, 1)})
    )
    assert whole == skipped != alone(make_engine, prompt, SEEDED, kv_cache="int8")


def test_a_session_with_skipped_layers_moves_exactly(make_engine: MakeEngine) -> None:
    config: dict[str, object] = {"kv_cache": "int8", "skip_layers": (1,)}
    whole = alone(make_engine, prompt_of(60), SEEDED, **config)
    source, target = make_engine(**config), make_engine(**config)
    source.submit(state_of("a", prompt_of(60), **SEEDED))
    before = collect(source, steps=8)["a"]
    move(source, target, "a")
    assert before + collect(target)["a"] == whole


def test_a_layer_that_the_model_has_not_is_refused(make_engine: MakeEngine) -> None:
    with pytest.raises(SkipLayersError, match="expected layers to skip from 0 to 1, found 2"):
        make_engine(kv_cache="int8", skip_layers=(2,))
