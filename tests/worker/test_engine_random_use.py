"""Two engines under any order of steps, freezes, moves, holds and cancels: books balance, and what is emitted is what was due."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvroll_kernels.dispatch import native_is_built
from kvroll_worker.engine.engine import Engine
from kvroll_worker.request import EnginePhase, NoRoomError
from tests.worker.test_engine_equalities import alone
from tests.worker.tiny_model import MakeEngine, Trace, collect, prompt_of, state_of

NAMES = ("a", "b", "c", "d")
PROMPTS = {name: prompt_of(9 + 23 * n, seed=n) for n, name in enumerate(NAMES)}
SAMPLING: dict[str, Any] = {"temperature": 0.8, "seed": 3, "max_tokens": 40}
ACTS = st.lists(
    st.tuples(st.sampled_from(["step", "step", "freeze", "thaw", "move", "replay", "cancel"]), st.sampled_from(NAMES)),
    max_size=40,
)


class Pair:
    """Sessions on two small engines, and what each has emitted."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = engines
        self.emitted: dict[str, Trace] = {name: [] for name in NAMES}
        self.cancelled: set[str] = set()
        for name in NAMES:
            engines[0].submit(state_of(name, PROMPTS[name], **SAMPLING))

    def act(self, verb: str, name: str) -> None:
        if verb == "step":
            self.step(1)
        elif (home := next((e for e in self.engines if name in e.sessions()), None)) is not None:
            getattr(self, verb)(home, self.engines[1 - self.engines.index(home)], name)
        for engine in self.engines:
            engine.check_integrity()

    def step(self, steps: int | None) -> None:
        for engine in self.engines:
            for name, traces in collect(engine, steps).items():
                self.emitted[name] += traces

    def freeze(self, home: Engine, other: Engine, name: str) -> None:
        home.freeze(name)

    def thaw(self, home: Engine, other: Engine, name: str) -> None:
        home.thaw(name)

    def cancel(self, home: Engine, other: Engine, name: str) -> None:
        home.cancel(name)
        self.cancelled.add(name)

    def replay(self, home: Engine, other: Engine, name: str) -> None:
        other.submit(home.snapshot(name), hold=True)
        home.cancel(name)
        other.release(name)

    def move(self, home: Engine, other: Engine, name: str) -> None:
        home.freeze(name)
        covered = home.num_kv_tokens(name)
        pages = -(-covered // 32)
        try:
            other.reserve(name, pages)
        except NoRoomError:
            other.cancel(name)
            return
        for index in range(pages):
            form = home.config.precision.sealing.form(index, covered)
            other.write_page(name, index, home.read_page(name, index, form), None)
        other.restore(home.snapshot(name), covered)
        home.cancel(name)
        other.release(name)

    def finish(self) -> None:
        for engine in self.engines:
            for name, phase in engine.sessions().items():
                if phase is EnginePhase.FROZEN:
                    engine.thaw(name)
        self.step(None)


# Twenty-five histories of the reference take minutes, and the books that this tests know nothing of kernels.
@pytest.mark.parametrize("ops_name", ["native" if native_is_built() else "reference"], indirect=True)
@pytest.mark.parametrize("kv_cache", ["int8", "kivi2"])
@pytest.mark.slow
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(acts=ACTS)
def test_any_order_of_acts_emits_what_undisturbed_sessions_emit(
    make_engine: MakeEngine, kv_cache: str, acts: list[tuple[str, str]]
) -> None:
    pair = Pair([make_engine(pages=10, kv_cache=kv_cache) for _ in range(2)])
    for verb, name in acts:
        pair.act(verb, name)
    pair.finish()
    for name in NAMES:
        whole = alone(make_engine, PROMPTS[name], SAMPLING, kv_cache=kv_cache)
        if name in pair.cancelled:
            assert pair.emitted[name] == whole[: len(pair.emitted[name])]
        else:
            assert pair.emitted[name] == whole
    for engine in pair.engines:
        stats = engine.stats()
        assert (stats.pages_free, stats.running + stats.waiting + stats.held + stats.frozen) == (stats.pages_total, 0)
