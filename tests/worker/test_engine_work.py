"""What an engine counts of its steps is what the work model reckons, and who waits for room."""

from kvroll_core.precision.precision import Precision
from kvroll_core.work import WorkModel
from tests.worker.tiny_model import MakeEngine, collect, prompt_of, state_of


def test_the_engine_counts_its_steps(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit(state_of("a", prompt_of(40), max_tokens=3))
    collect(engine)
    shape = engine.shape
    model = WorkModel(shape, Precision("bf16", "bf16"))
    expected = [model.step([span]) for span in ((0, 40, True), (40, 1, True), (41, 1, True))]
    stats = engine.stats()
    assert stats.steps_total == 3
    assert stats.read_bytes_total == sum(work.read_bytes for work in expected)
    assert stats.flops_total == sum(work.flops for work in expected)


def test_waiting_for_room_is_for_pages_alone(make_engine: MakeEngine) -> None:
    engine = make_engine(pages=6, max_sessions=3, max_model_len=192)
    engine.submit(state_of("a", prompt_of(70), max_tokens=20))  # three pages
    engine.step()
    assert not engine.stats().waiting_for_room
    engine.submit(state_of("b", prompt_of(90, seed=1), max_tokens=20))  # three more and a spare one
    assert engine.stats().waiting == 1
    assert engine.stats().waiting_for_room
    engine.cancel("a")
    engine.cancel("b")
    for name in "cdef":
        engine.submit(state_of(name, [1, 2, 3], max_tokens=20))
    engine.step()
    stats = engine.stats()
    assert (stats.waiting, stats.waiting_for_room) == (1, False), "the fourth waits for a slot"
