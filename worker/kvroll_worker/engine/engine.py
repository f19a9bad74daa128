"""The engine: joins scheduler, runner, sampler and KV, and is the only door to them. One thread calls it, between steps."""

import time
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from itertools import count

import structlog

from kvroll_core.budget import pages_for, plan_budget
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.work import WorkCounter, WorkModel
from kvroll_kernels import dispatch
from kvroll_worker.engine.blame import for_engine, for_session
from kvroll_worker.engine.config import EngineConfig, budget_request, cache_salt, describe
from kvroll_worker.engine.schedule.admission import check_fits, check_ids
from kvroll_worker.engine.schedule.landing import LandingZone
from kvroll_worker.engine.schedule.open_pages import OpenPages
from kvroll_worker.engine.schedule.paging import Paging
from kvroll_worker.engine.schedule.scheduler import Chunk, Limits, Scheduler
from kvroll_worker.engine.schedule.spill import SpillStore, beside_spill
from kvroll_worker.engine.session import EngineSession
from kvroll_worker.engine.step.probe import PromptProbe
from kvroll_worker.engine.step.runner import Runner
from kvroll_worker.engine.step.sampler import Row
from kvroll_worker.engine.step.sizes import StepSizes
from kvroll_worker.engine.step.weights import load_weights
from kvroll_worker.engine.text.detokenizer import TextStream
from kvroll_worker.engine.text.emitter import Emitter, check_numbers
from kvroll_worker.engine.text.scorer import PromptScorer
from kvroll_worker.kv.cache_switch import CacheMode
from kvroll_worker.kv.mixed_storage import storage_for
from kvroll_worker.kv.pool import IntegrityError, PagePool
from kvroll_worker.models.spec import load_spec
from kvroll_worker.models.tokenizer import Tokenizer
from kvroll_worker.request import (
    DoesNotFitError,
    EngineError,
    EnginePhase,
    EngineStats,
    PrecisionEpoch,
    SessionFailure,
    SessionState,
    TokenEvent,
    UnknownSessionError,
)

__all__ = ["Engine", "EngineConfig", "Tokenizer"]

_log = structlog.get_logger("kvroll.worker.engine")


class Engine:
    """A model at one precision, and the sessions that it generates for.

    Its parts (`held` sessions, `scheduler`, `paging`, `pool`, `storage`, `runner`, `emitter`, the `planned` budget) may be looked at
    between two steps; what serves goes through the methods alone.

    Raises (constructor):
        kvroll_core.budget.BudgetError: the spec cannot fit; nothing was loaded.
        UnsupportedModelError: the model has what this engine does not run.
        FormatNotBuiltError, UnknownFormatError: a dtype word that this version cannot run.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        spec = load_spec(config.model_dir)
        request = beside_spill(budget_request(config, spec), config.spill_memory_bytes)
        budget = plan_budget(spec.shape, request)
        self.budget = str(budget)
        self.shape, self.asked = spec.shape, request
        self.max_model_len = request.max_model_len
        self.tokenizer = Tokenizer(config.model_dir, spec)
        ops = dispatch.load(config.ops)
        ops.set_threads(config.threads)
        self.descriptor = describe(config, spec, self.tokenizer, ops, self.max_model_len)
        self.planned, self.ops = budget, ops
        self.pool = PagePool(budget.pages + 1)
        opened = (budget.open_pages + 1, config.precision.residual_tokens)
        self.storage = storage_for(ops, config.precision.kv_form, spec.shape, budget.pages + 1, *opened)
        self._spill = SpillStore(self.storage, config.spill_memory_bytes)
        self.paging = Paging(
            self.pool,
            # What a full page of a sealed format holds depends on what came after it, so it cannot be shared by its ids.
            mode=CacheMode.OFF if config.precision.sealing.seals else CacheMode(config.prefix_cache),
            salt=cache_salt(self.descriptor),
            spill=self._spill,
            open_pages=OpenPages(config.precision.sealing, budget.open_pages),
        )
        self.scheduler = Scheduler(self.paging, Limits(config.max_sessions, config.max_batch_tokens))
        self._landing = LandingZone(self.scheduler, self.paging, self.storage)
        precision = config.precision
        weights = load_weights(
            config.model_dir, spec, precision.weights, ops, block=precision.weight_block, head=precision.head
        )
        max_rows = max(config.max_batch_tokens, config.max_sessions)
        sizes = (max_rows, config.max_sessions, self.max_model_len)
        self.runner = Runner(ops, spec, weights, self.storage, *sizes, config.precision.sealing)
        self._scorer = PromptScorer(self.runner, self.tokenizer)
        self.emitter = Emitter(self.tokenizer, self._scorer)
        self.held: dict[str, EngineSession] = {}
        self._arrivals = count()
        self._prompt_tokens = self._prefill_tokens = self._generated_tokens = 0
        self._work = WorkCounter(WorkModel(spec.shape, request.precision))
        self._sizes = StepSizes()

    # -- sessions in

    def submit(self, state: SessionState, *, hold: bool = False, probe: PromptProbe | None = None) -> None:
        """Takes a new session, or one to replay: prompt and outputs are computed, generation goes on at index len(outputs).

        A state without precision epochs gets one, `Start`, of this engine. With `hold` it computes all but the last id and waits.
        A `probe` is shown rows of the prompt's logits.

        Raises:
            DoesNotFitError: it can never run here.
        """
        session = self._new_session(state)
        session.hold, session.probe = hold, probe
        session.state.kv_converted = False
        self.held[state.session_id] = session
        self.scheduler.add(session)

    def extend(self, session_id: str, token_ids: list[int]) -> None:
        """Appends outputs that another worker generated meanwhile to a held session."""
        session = self._find(session_id)
        if not (session.hold or session.parked):
            raise EngineError(f"expected a held session to extend, {session_id} is {session.phase}")
        check_ids(token_ids, self.tokenizer.vocab_size)
        for token_id in token_ids:
            session.append(token_id)
            session.text.push(token_id)
        session.state.emitted_chars = session.text.emitted_chars

    def is_held_ready(self, session_id: str) -> bool:
        """True once nothing is left to compute before `release`."""
        return self._find(session_id).phase is EnginePhase.HELD

    def release(self, session_id: str) -> None:
        """Lets a held session generate. Releasing one that already does is fine."""
        session = self._find(session_id)
        session.hold = session.parked = False

    def freeze(self, session_id: str) -> None:
        """Stops stepping a session; it keeps its pages and is not preempted."""
        self._find(session_id).frozen = True

    def thaw(self, session_id: str) -> None:
        """Goes on with a frozen session."""
        self._find(session_id).frozen = False

    def cancel(self, session_id: str) -> None:
        """Frees everything of a session or reservation; an unknown id is fine."""
        with for_engine(f"freeing {session_id}"):
            if (session := self.held.pop(session_id, None)) is not None:
                self.scheduler.remove(session)
            self.scheduler.free_reservation(session_id)

    # -- sessions out

    def snapshot(self, session_id: str) -> SessionState:
        """A copy of the state, consistent with the pages until the next step."""
        return deepcopy(self._find(session_id).state)

    def num_kv_tokens(self, session_id: str) -> int:
        """Tokens that the session's pages cover now."""
        return self._find(session_id).num_kv

    def read_page(self, session_id: str, page_index: int, kv_format: str) -> bytes:
        """A whole page in `kv_format`, unwritten token slots as zeros."""
        session = self._find(session_id)
        valid = min(session.num_kv - page_index * PAGE_TOKENS, PAGE_TOKENS)
        if not session.num_passed <= page_index or valid <= 0:
            have = f"KV for {session.num_kv} tokens from page {session.num_passed} on, the rest is outside every layer's window"
            raise EngineError(f"{session_id} has {have}: page {page_index} is none of them")
        if self.storage.open is not None and page_index >= session.num_sealed:
            return self.storage.open.read(session.open_page(page_index), valid, kv_format)
        return self.storage.read(session.pages[page_index], valid, kv_format)

    # -- sessions landing

    def reserve(self, session_id: str, num_pages: int, first_page: int = 0) -> None:
        """Keeps pages for a session to be restored, from `first_page` on; repeats grow it. Raises NoRoomError, DoesNotFitError."""
        if session_id in self.held:
            raise EngineError(f"{session_id} is already here as {self.phase(session_id)}; cancel it first")
        if num_pages > pages_for(self.max_model_len):
            raise DoesNotFitError(f"{num_pages} pages are more than max_model_len {self.max_model_len} needs")
        self.scheduler.reserve(session_id, num_pages, first_page)

    def write_page(self, session_id: str, page_index: int, data: bytes, content_hash: bytes | None) -> None:
        """Writes a page of the reservation, in this engine's format; give the hash (XXH3-128) of full pages only. Under it the page can be
        adopted, if what lies in memory then has that hash.
        """
        self._landing.write_page(session_id, page_index, data, content_hash)

    def adopt_page(self, session_id: str, page_index: int, content_hash: bytes) -> bool:
        """Shares a full page that is already here under that hash; False if there is none."""
        return self._landing.adopt_page(session_id, page_index, content_hash)

    def read_back(self, session_id: str, page_index: int) -> bytes:
        """A reserved page's bytes as they landed."""
        return self._landing.read_back(session_id, page_index)

    def restore(self, state: SessionState, num_kv_tokens: int) -> None:
        """The reservation becomes a held session; what KV does not cover is computed after `release`.

        A session that still owes logprobs of its prompt computes all of it: they cannot be told from KV.
        """
        session = self._new_session(state)
        epoch = session.state.precision_epochs[-1]
        if (epoch.weights, epoch.kv_cache) != (self.config.precision.weights, self.config.precision.kv_cache):
            session.state.kv_converted = True  # whoever restores knows, but wrong KV must not depend on that
        self._landing.settle(session, 0 if session.scores_prompt else num_kv_tokens)
        self.held[state.session_id] = session

    # -- looking

    def phase(self, session_id: str) -> EnginePhase:
        return self._find(session_id).phase

    def sessions(self) -> dict[str, EnginePhase]:
        """Every session but reservations."""
        return {session_id: session.phase for session_id, session in self.held.items()}

    def has_work(self) -> bool:
        """True if `step` would compute something."""
        return self.scheduler.has_work()

    def stats(self) -> EngineStats:
        phases = list(self.sessions().values())
        return EngineStats(
            running=phases.count(EnginePhase.DECODE) + phases.count(EnginePhase.PREFILL),
            waiting=phases.count(EnginePhase.WAITING),
            held=phases.count(EnginePhase.HELD),
            frozen=phases.count(EnginePhase.FROZEN),
            page_bytes=self.planned.page_bytes,
            open_page_bytes=self.planned.open_page_bytes,
            kv_bytes_per_token=self.planned.kv_token_bytes,
            prompt_tokens_total=self._prompt_tokens,
            generated_tokens_total=self._generated_tokens,
            preemptions_total=self.scheduler.preemptions_total,
            **self._work.figures(),
            **self._sizes.figures(),
            kernel_seconds_total=self.runner.kernel_seconds,
            waiting_for_room=self.scheduler.waits_for_room(),
            prefill_tokens_total=self._prefill_tokens,
            spills_total=self._spill.spills_total,
            spilled_bytes=self._spill.bytes_held,
            **self.paging.figures(),
        )

    def check_integrity(self) -> None:
        """Raises IntegrityError if pages or slots do not balance, or a page that is about to be written is not its session's alone."""
        self.pool.check_integrity(self.scheduler.holders())
        self.paging.open.check_integrity(self.scheduler.open_holders())
        self.paging.check_integrity(self.held.values())
        if not self.scheduler.slots_balance():
            raise IntegrityError("session slots do not balance: free + running + reserved != max_sessions")

    # -- one step

    def step(self) -> list[TokenEvent | SessionFailure]:
        """Computes one batch; finished and failed sessions are freed before it returns.

        Raises:
            EngineFault: the engine's state is unknown. So it is after any other exception: what one session alone did wrong is an event.
        """
        with for_engine("a step"):
            chunks = self.scheduler.schedule()
            if not chunks:
                return []
            self._begin(chunks)
            logits = self.runner.forward(chunks)
            if any(chunk.session.scores_prompt for chunk in chunks):
                logits = logits.copy()
            self._work.count((chunk.start, chunk.length, chunk.samples) for chunk in chunks)
            for chunk in chunks:
                chunk.session.num_kv += chunk.length
                self._prefill_tokens += max(min(chunk.length, chunk.session.num_admitted - chunk.start), 0)
            events = self._take_turns(chunks, iter(logits))
            self._settle(chunks, events)
            return events

    def _begin(self, chunks: list[Chunk]) -> None:
        """Counts the step's tokens, and marks the sessions whose first step it is."""
        self._sizes.count(sum(chunk.length for chunk in chunks))
        now = time.monotonic()
        for session in (chunk.session for chunk in chunks):
            session.scheduled_at = now if session.scheduled_at is None else session.scheduled_at

    def _take_turns(self, chunks: list[Chunk], logits: Iterator[Row]) -> list[TokenEvent | SessionFailure]:
        """What is done for each session alone, in the order of the rows."""
        events: list[TokenEvent | SessionFailure] = []
        first_row = 0
        for chunk in chunks:
            row = next(logits) if chunk.samples else None
            event = for_session(chunk.session.session_id, partial(self._turn, chunk, first_row, row))
            if event is not None:
                events.append(event)
            first_row += chunk.length
        return events

    def _turn(self, chunk: Chunk, first_row: int, logits: Row | None) -> TokenEvent | None:
        check_numbers(self.runner.hidden(first_row, chunk.length), chunk.start)
        if chunk.session.scores_prompt:
            self._scorer.score(chunk, first_row)
        return None if logits is None else self.emitter.advance(chunk.session, logits)

    def _settle(self, chunks: list[Chunk], events: list[TokenEvent | SessionFailure]) -> None:
        """Lets others share what was computed, counts it, and frees what ended."""
        failed = {event.session_id for event in events if isinstance(event, SessionFailure)}
        for session in (chunk.session for chunk in chunks):
            if session.session_id in failed:
                self.paging.disown(session)  # numbers that are no numbers may stand in any of its pages
            else:
                self.paging.advance(session)
        for event in events:
            if isinstance(event, TokenEvent):
                self._generated_tokens += 1
                if event.index == 0:
                    self._prompt_tokens += len(self._find(event.session_id).state.prompt_token_ids)
            if isinstance(event, SessionFailure) or event.finish_reason:
                self.cancel(event.session_id)
        if self.paging.switched():
            _log.info("prefix cache", **self.paging.switch.describe())

    # -- admission

    def _new_session(self, state: SessionState) -> EngineSession:
        if state.session_id in self.held:
            raise EngineError(f"{state.session_id} is already here as {self.phase(state.session_id)}; cancel it first")
        most_pages, window = self.paging.most_pages, self.planned.window
        check_fits(state, self.max_model_len, most_pages, window, self.tokenizer.vocab_size)
        state = deepcopy(state)
        if not state.precision_epochs:
            epoch = PrecisionEpoch(
                len(state.output_token_ids), self.config.precision.weights, self.config.precision.kv_cache, "Start"
            )
            state.precision_epochs.append(epoch)
        text = TextStream(self.tokenizer, state.sampling, state.output_token_ids, state.emitted_chars)
        return EngineSession(state, text, next(self._arrivals), window, sealing=self.paging.open.sealing)

    def _find(self, session_id: str) -> EngineSession:
        if (session := self.held.get(session_id)) is None:
            raise UnknownSessionError(f"session {session_id} is not here")
        return session
