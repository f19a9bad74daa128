"""What the engine refuses, and that it gives everything back."""

from dataclasses import replace

import pytest

from kvroll_core.budget import BudgetError
from kvroll_core.precision.formats import UnknownFormatError
from kvroll_worker.request import DoesNotFitError, EngineError, EnginePhase, NoRoomError, UnknownSessionError
from tests.worker.tiny_model import MakeEngine, collect, prompt_of, state_of


def test_a_spec_that_cannot_fit_names_what_would(make_engine: MakeEngine) -> None:
    with pytest.raises(
        BudgetError,
        match=r"max_model_len 256 needs 8 pages.* there are .* = 3 pages = 96 tokens; what would fit: max_model_len 96",
    ):
        make_engine(pages=3)


def test_dtype_words_that_are_not_known(make_engine: MakeEngine) -> None:
    with pytest.raises(UnknownFormatError, match="kivi3"):
        make_engine(kv_cache="kivi3", kv_memory_bytes=1 << 20)
    with pytest.raises(UnknownFormatError, match="int3"):
        make_engine(weights="int3")


@pytest.mark.parametrize(
    ("length", "sampling", "message"),
    [
        (250, {"max_tokens": 7}, "250 prompt \\+ 7 max_tokens = 257 tokens, more than max_model_len 256"),
        (0, {}, "prompt: expected a prompt of at least 1 token"),
        (4, {"max_tokens": 0}, "max_tokens: expected a whole number from 1 .* found 0"),
    ],
)
def test_a_request_that_can_never_run_is_refused_with_the_arithmetic(
    make_engine: MakeEngine, length: int, sampling: dict[str, int], message: str
) -> None:
    engine = make_engine()
    with pytest.raises(DoesNotFitError, match=message):
        engine.submit(state_of("a", prompt_of(length), **sampling))
    assert engine.sessions() == {}


def test_ids_outside_the_vocabulary_are_refused(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for bad in (-1, 264):
        with pytest.raises(DoesNotFitError, match=f"prompt: expected token ids from 0 to 263, found {bad}"):
            engine.submit(state_of("a", [1, bad]))


def test_the_same_session_twice_is_refused(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit(state_of("a", [1, 2]))
    with pytest.raises(EngineError, match="already here"):
        engine.submit(state_of("a", [1, 2]))
    with pytest.raises(EngineError, match="already here"):
        engine.reserve("a", 1)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_cancel_gives_everything_back_in_any_phase(make_engine: MakeEngine, steps: int) -> None:
    engine = make_engine(max_batch_tokens=20)
    engine.submit(state_of("a", prompt_of(50)))
    engine.submit(state_of("b", prompt_of(50, seed=1)), hold=True)
    engine.reserve("c", 3)
    collect(engine, steps=steps)
    engine.freeze("a")
    for session_id in ("a", "b", "c", "unknown"):
        engine.cancel(session_id)
        engine.check_integrity()
    stats = engine.stats()
    assert (stats.pages_free, stats.running, stats.waiting, stats.held, stats.frozen) == (stats.pages_total, 0, 0, 0, 0)
    assert not engine.has_work()
    with pytest.raises(UnknownSessionError):
        engine.snapshot("a")


def test_reservations_grow_and_are_refused_when_there_is_no_room(make_engine: MakeEngine) -> None:
    engine = make_engine(pages=8, max_sessions=2)
    engine.reserve("a", 2)
    engine.reserve("a", 5)
    engine.reserve("a", 5)
    assert engine.stats().pages_free == 3
    with pytest.raises(NoRoomError, match="3 of 8 are free"):
        engine.reserve("b", 4)
    engine.reserve("b", 3)
    with pytest.raises(NoRoomError, match="session slots"):
        engine.reserve("c", 0)
    engine.check_integrity()


def test_restore_checks_what_kv_may_cover(make_engine: MakeEngine) -> None:
    engine = make_engine()
    state = state_of("a", prompt_of(40))
    with pytest.raises(UnknownSessionError, match="reserve first"):
        engine.restore(state, 1)
    engine.reserve("a", 1)
    with pytest.raises(EngineError, match="0 to 32 tokens"):
        engine.restore(state, 33)
    with pytest.raises(EngineError, match="page index below 1"):
        engine.write_page("a", 1, b"", None)
    with pytest.raises(ValueError, match="page of 8192 bytes, found 3"):
        engine.write_page("a", 0, b"abc", None)
    engine.restore(state, 0)
    assert engine.phase("a") is EnginePhase.HELD


def test_what_is_being_moved_is_not_preempted_and_others_wait(make_engine: MakeEngine) -> None:
    engine = make_engine(pages=8)
    engine.submit(state_of("held", prompt_of(60, seed=5)), hold=True)
    collect(engine)
    engine.reserve("landing", 3)
    engine.submit(state_of("young", prompt_of(64, seed=6), max_tokens=60))
    emitted = collect(engine)
    # 2 + 3 pages are someone else's: `young` stops at the 96 tokens that its 3 pages hold.
    assert len(emitted["young"]) == 96 - 64 + 1
    assert engine.phase("young") is EnginePhase.WAITING
    assert engine.stats().preemptions_total == 1
    assert engine.phase("held") is EnginePhase.HELD
    engine.cancel("landing")
    assert len(collect(engine)["young"]) == 60 - 33
    assert engine.phase("held") is EnginePhase.HELD


def test_max_sessions_bounds_those_that_run(make_engine: MakeEngine) -> None:
    engine = make_engine(max_sessions=2)
    for n in range(5):
        engine.submit(state_of(f"s{n}", prompt_of(10, seed=n)))
    collect(engine, steps=2)
    assert list(engine.sessions().values()) == [EnginePhase.DECODE] * 2 + [EnginePhase.WAITING] * 3
    assert sorted(collect(engine)) == [f"s{n}" for n in range(5)]


def test_a_long_prompt_does_not_stop_the_others(make_engine: MakeEngine) -> None:
    engine = make_engine(max_batch_tokens=512, max_model_len=1024)
    engine.submit(state_of("short", prompt_of(10), max_tokens=40))
    collect(engine, steps=1)
    engine.submit(state_of("long", prompt_of(600, seed=1), max_tokens=4))
    emitted = collect(engine, steps=4)
    assert len(emitted["short"]) == 4
    assert engine.num_kv_tokens("long") == 4 * 32


def test_the_epoch_of_a_new_session_is_this_precision(make_engine: MakeEngine) -> None:
    engine = make_engine(kv_cache="int8")
    state = state_of("a", prompt_of(4))
    engine.submit(state)
    [epoch] = engine.snapshot("a").precision_epochs
    assert (epoch.from_token, epoch.weights, epoch.kv_cache, epoch.mode) == (0, "bf16", "int8", "Start")
    kept = replace(state, session_id="b", precision_epochs=[epoch, replace(epoch, from_token=0, mode="Replay")])
    engine.submit(kept)
    assert engine.snapshot("b").precision_epochs == kept.precision_epochs
