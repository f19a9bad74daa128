"""Any order of what can happen to sessions on a full pool: books balance after every act, and nobody's tokens change."""

import contextlib
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_worker.engine.engine import Engine
from kvroll_worker.kv.page_hash import content_hash
from kvroll_worker.request import DoesNotFitError, EnginePhase, NoRoomError, SessionState, TokenEvent
from tests.worker.paper_engine import paper_engine, tokens_alone
from tests.worker.tiny_model import MakeModel, prompt_of, state_of

PAGES = 13
PREFIXES = [prompt_of(length, seed=length) for length in (3, 40, 64, 70, 100)]
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
names = st.integers(0, 11)
alive = precondition(lambda machine: machine.engine.sessions())


@dataclass
class Told:
    """What a session was asked, and what it said so far."""

    state: SessionState
    tokens: list[int] = field(default_factory=list)
    sound: bool = True  # False: its KV was converted, so its tokens may be others


class EngineMachine(RuleBasedStateMachine):
    """One engine with few pages; sessions share prefixes, are preempted, moved away and back, evicted and cancelled."""

    model: ClassVar[Any]
    spill_memory_bytes: ClassVar[int] = 0
    kv_cache: ClassVar[str] = "bf16"

    def __init__(self) -> None:
        super().__init__()
        self.engine: Engine = paper_engine(
            self.model, pages=PAGES, spill_memory_bytes=self.spill_memory_bytes, kv_cache=self.kv_cache
        )
        self.told: dict[str, Told] = {}
        self.numbers = count()

    # -- sessions begin

    @initialize(prefix=st.sampled_from(PREFIXES[1:]), others=st.integers(1, 4))
    def fill(self, prefix: list[int], others: int) -> None:
        """Enough sessions for the pool to be full from the beginning."""
        for number in range(2 + others):
            shared = prefix if number % 2 else prompt_of(50, seed=number)
            self._begin(
                state_of(f"s{next(self.numbers)}", shared, logprobs=None, max_tokens=50, seed=number, temperature=1.0)
            )

    @rule(
        prefix=st.sampled_from(PREFIXES),
        tail=st.integers(0, 40),
        max_tokens=st.integers(1, 60),
        seed=st.integers(0, 2),
        salt=st.sampled_from(["", "", "tenant"]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        scores=st.sampled_from([None, None, None, 0]),
    )
    def submit(
        self, prefix: list[int], tail: int, max_tokens: int, seed: int, salt: str, priority: int, scores: int | None
    ) -> None:
        sampling = {"max_tokens": max_tokens, "seed": seed, "temperature": 1.0, "prompt_logprobs": scores}
        state = state_of(f"s{next(self.numbers)}", prefix + prompt_of(tail, seed=7), logprobs=None, **sampling)
        state.cache_salt, state.priority = salt, priority
        self._begin(state)

    @alive
    @rule(name=names, seed=st.integers(0, 2), max_tokens=st.integers(1, 30))
    def fork(self, name: int, seed: int, max_tokens: int) -> None:
        """Another session goes on from what this one has so far."""
        parent = self._alive(name)
        ids = parent.state.prompt_token_ids + parent.tokens
        self._begin(state_of(f"s{next(self.numbers)}", ids, logprobs=None, seed=seed, max_tokens=max_tokens))

    # -- and go on

    @alive
    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        had_work = self.engine.has_work()
        events = self.engine.step()
        assert had_work or not events
        for event in events:
            assert isinstance(event, TokenEvent), event
            told = self.told[event.session_id]
            assert event.index == len(told.tokens)
            told.tokens.append(event.token_id)
            self.engine.check_integrity()

    @alive
    @rule(name=names)
    def preempt(self, name: int) -> None:
        running = [s for s in self.engine.scheduler.running if not s.is_protected]
        if running:
            self.engine.scheduler.preempt(running[name % len(running)])

    @alive
    @rule(name=names)
    def freeze(self, name: int) -> None:
        self.engine.freeze(self._alive(name).state.session_id)

    @alive
    @rule(name=names)
    def thaw(self, name: int) -> None:
        self.engine.thaw(self._alive(name).state.session_id)

    # -- leave and come back

    @alive
    @rule(name=names, by_name=st.booleans())
    def move_away_and_back(self, name: int, by_name: bool) -> None:
        self._move(self._alive(name), by_name, convert=False)

    @alive
    @rule(name=names)
    def convert(self, name: int) -> None:
        """Comes back with other numbers; whoever comes with the same ids must not read them."""
        with_kv = [s for s in self.engine.sessions() if self.engine.num_kv_tokens(s) >= PAGE_TOKENS]
        if not with_kv:
            return
        told = self.told[sorted(with_kv)[name % len(with_kv)]]
        self._move(told, by_name=False, convert=True)
        twin = replace(told.state, session_id=f"s{next(self.numbers)}", priority=0)
        self._begin(replace(twin, sampling=replace(twin.sampling, prompt_logprobs=None)))

    def _move(self, told: Told, by_name: bool, convert: bool) -> None:
        session_id = told.state.session_id
        self.engine.freeze(session_id)
        state, covered = self.engine.snapshot(session_id), self.engine.num_kv_tokens(session_id)
        sealing, first = self.engine.config.precision.sealing, self.engine.held[session_id].num_passed
        indexes = range(first, -(-covered // PAGE_TOKENS))
        pages = [self.engine.read_page(session_id, i, sealing.form(i, covered)) for i in indexes]
        self.engine.cancel(session_id)
        if convert and covered:
            told.sound, state.kv_converted = False, True
            pages = [bytes(255 - byte for byte in page) for page in pages]
            self.evict(PAGES)  # else its own cached pages, which are right, would stand in for what it brings
        try:
            self.engine.reserve(session_id, first + len(pages), first)
            self.engine.check_integrity()
            self._land(session_id, dict(enumerate(pages, first)), sealing.final(covered), by_name)
            self.engine.restore(state, covered)
        except NoRoomError:
            self.engine.cancel(session_id)
            self.engine.submit(state)
            return
        self.engine.check_integrity()
        self.engine.release(session_id)

    def _land(self, session_id: str, pages: dict[int, bytes], full: int, by_name: bool) -> None:
        for index, data in pages.items():
            content = content_hash(data) if index < full and by_name else None
            if content is None or not self.engine.adopt_page(session_id, index, content):
                self.engine.write_page(session_id, index, data, content)
            assert self.engine.read_back(session_id, index) == data

    @alive
    @rule(name=names)
    def cancel(self, name: int) -> None:
        told = self._alive(name)
        self.engine.cancel(told.state.session_id)
        del self.told[told.state.session_id]

    # -- pressure

    @rule(pages=st.integers(1, PAGES))
    def evict(self, pages: int) -> None:
        """Someone takes pages and gives them back: the oldest cached ones are gone."""
        pool = self.engine.pool
        pool.release(pool.allocate(min(pages, pool.num_free)))

    @rule(pages=st.integers(1, 4))
    def reserve(self, pages: int) -> None:
        with contextlib.suppress(NoRoomError):
            self.engine.reserve("ghost", pages)

    @precondition(lambda self: "ghost" in self.engine.scheduler.reservations)
    @rule()
    def free_reservation(self) -> None:
        self.engine.cancel("ghost")

    @precondition(lambda self: self.told and not self.engine.config.precision.sealing.seals)
    @rule(on=st.booleans())
    def switch_the_cache(self, on: bool) -> None:
        """What Auto does when the hit rate changes."""
        paging = self.engine.paging
        paging.switch.on = on
        if not on:
            paging.cache.clear()

    @invariant()
    def books_balance(self) -> None:
        self.engine.check_integrity()

    def teardown(self) -> None:
        self.engine.cancel("ghost")
        for name, phase in self.engine.sessions().items():
            if phase is EnginePhase.FROZEN:
                self.engine.thaw(name)
        for _ in range(3000):
            if not self.engine.has_work():
                break
            self._step()
        assert not self.engine.sessions()
        stats = self.engine.stats()
        assert (stats.pages_free, stats.spilled_bytes) == (stats.pages_total, 0)
        for told in self.told.values():
            assert len(told.tokens) == told.state.sampling.max_tokens
            if told.sound:
                assert told.tokens == tokens_alone(self.model, told.state, self.kv_cache)

    def _begin(self, state: SessionState) -> None:
        try:
            self.engine.submit(state)
        except DoesNotFitError:
            return
        self.told[state.session_id] = Told(state)

    def _alive(self, name: int) -> Told:
        alive = sorted(self.engine.sessions())
        return self.told[alive[name % len(alive)]]


MACHINE = settings(max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


class SpillingMachine(EngineMachine):
    """The same with room for about half of what is preempted."""

    spill_memory_bytes = 6 * 8192


class SealingMachine(EngineMachine):
    """Sealed and open pages, of which the latter are what is short."""

    kv_cache = "kivi4"


class SealingSpillingMachine(SealingMachine):
    """The same with room for about half of what is preempted."""

    spill_memory_bytes = 2048


pytestmark = pytest.mark.slow


class WindowMachine(SpillingMachine):
    """The same where a session keeps four of its pages at most."""


class NarrowMachine(EngineMachine):
    """A token sees only itself: nothing before it is ever kept but the page that it stands in."""


@pytest.fixture(scope="module", autouse=True)
def tiny(make_model: MakeModel) -> None:
    EngineMachine.model = make_model()
    WindowMachine.model = make_model(**MISTRAL, sliding_window=33)
    NarrowMachine.model = make_model(**MISTRAL, sliding_window=1)


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = MACHINE
TestSpillingMachine = SpillingMachine.TestCase
TestSpillingMachine.settings = MACHINE
TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = MACHINE
TestNarrowMachine = NarrowMachine.TestCase
TestNarrowMachine.settings = MACHINE
TestSealingMachine = SealingMachine.TestCase
TestSealingMachine.settings = MACHINE
TestSealingSpillingMachine = SealingSpillingMachine.TestCase
TestSealingSpillingMachine.settings = MACHINE
