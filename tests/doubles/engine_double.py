"""A small engine in memory that fulfils the contract; a lost page, wrong position or wrong id changes its output from there on."""

import time
from collections.abc import Callable
from functools import partial

from kvroll_core.budget import BudgetRequest, ModelShape
from kvroll_core.precision.precision import Precision
from kvroll_worker.engine.blame import for_session
from kvroll_worker.kv.page_hash import content_hash as hash_of
from kvroll_worker.request import (
    DoesNotFitError,
    EnginePhase,
    EngineStats,
    NoRoomError,
    Sampling,
    SessionFailure,
    SessionState,
    TokenEvent,
    UnknownSessionError,
)
from tests.doubles.model_double import (
    SLOT_BYTES,
    DoubleTokenizer,
    StoredPage,
    StoredSession,
    copy_of,
    descriptor_of,
    kv_slot,
    next_token,
    output_digest,
    transcode,
)

PAGE = 32


class EngineDouble:
    """`num_pages` pages of KV; `chunk` prompt tokens a step; `step_seconds` is slept in every step."""

    def __init__(
        self, *, weights: str = "bf16", kv_cache: str = "bf16", num_pages: int = 4096, chunk: int = 128, step_seconds: float = 0.0,
        max_model_len: int = 4096, slot_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.tokenizer = DoubleTokenizer()
        self.descriptor = descriptor_of(weights, kv_cache, max_model_len=max_model_len)
        self.budget = "double"
        self.shape = ModelShape(1, 16, 1, 1, 16, 16, 256, True, max_model_len)
        self.asked = BudgetRequest(
            Precision(weights, kv_cache), max_model_len, 64, 256, kv_memory_bytes=num_pages * PAGE * 64
        )
        self.kv_cache = kv_cache
        self.num_pages = num_pages
        self.on_write: Callable[[bytes], bytes] | None = None  # damages pages as they land
        self.fail_step: Exception | None = None
        self.fail_session: dict[str, Exception] = {}  # what the next token of each raises
        self._chunk = chunk
        self._step_seconds = step_seconds
        self._scale = (slot_bytes or SLOT_BYTES["bf16"]) // SLOT_BYTES["bf16"]
        self._sessions: dict[str, StoredSession] = {}
        self._by_hash: dict[bytes, StoredPage] = {}
        self._free = num_pages
        self._generated = 0
        self._prompted = 0
        self._preempted = 0
        self._steps = 0

    # -- contract

    @property
    def page_bytes(self) -> int:
        return PAGE * SLOT_BYTES[self.kv_cache] * self._scale

    def submit(self, state: SessionState, *, hold: bool = False, probe: object = None) -> None:
        most = len(state.prompt_token_ids) + state.sampling.max_tokens
        if most > self.descriptor.max_model_len or -(-most // PAGE) > self.num_pages:
            raise DoesNotFitError(
                f"{most} tokens do not fit into {self.descriptor.max_model_len} or {self.num_pages} pages"
            )
        assert (probe, state.session_id in self._sessions) == (None, False), "submitted twice, or with a probe"
        self._sessions[state.session_id] = StoredSession(copy_of(state), EnginePhase.WAITING, held=hold)

    def extend(self, session_id: str, token_ids: list[int]) -> None:
        self._get(session_id).state.output_token_ids.extend(token_ids)

    def is_held_ready(self, session_id: str) -> bool:
        session = self._get(session_id)
        return session.held and session.num_kv >= len(session.ids) - 1

    def release(self, session_id: str) -> None:
        session = self._get(session_id)
        assert session.held, "released, but not held"
        session.held = False
        session.phase = EnginePhase.PREFILL

    def freeze(self, session_id: str) -> None:
        self._get(session_id).frozen = True

    def thaw(self, session_id: str) -> None:
        self._get(session_id).frozen = False

    def snapshot(self, session_id: str) -> SessionState:
        return copy_of(self._get(session_id).state)

    def num_kv_tokens(self, session_id: str) -> int:
        return self._get(session_id).num_kv

    def read_page(self, session_id: str, page_index: int, kv_format: str) -> bytes:
        page = self._get(session_id).pages[page_index]
        assert page is not None
        return transcode(bytes(page.data), self.kv_cache, kv_format, self._scale)

    def reserve(self, session_id: str, num_pages: int, first_page: int = 0) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            session = StoredSession(SessionState(session_id, "", []), EnginePhase.HELD, held=True, reservation=True)
            self._sessions[session_id] = session
        assert session.reservation, "reserve of a session that runs"
        if num_pages - len(session.pages) > self._free:
            if not session.pages:
                del self._sessions[session_id]
            raise NoRoomError(f"{num_pages} pages asked, {self._free} free")
        while len(session.pages) < num_pages:
            session.pages.append(self._take())

    def write_page(self, session_id: str, page_index: int, data: bytes, content_hash: bytes | None) -> None:
        page = self._reserved(session_id).pages[page_index]
        assert page is not None
        assert page.refs == 1, "a shared page was written"
        assert len(data) == self.page_bytes
        page.data[:] = self.on_write(data) if self.on_write else data
        self._forget(page)
        if content_hash is not None and hash_of(bytes(page.data)) == content_hash:
            page.content_hash = content_hash
            self._by_hash[content_hash] = page

    def adopt_page(self, session_id: str, page_index: int, content_hash: bytes) -> bool:
        session = self._reserved(session_id)
        shared = self._by_hash.get(content_hash)
        if shared is None:
            return False
        shared.refs += 1
        self._drop(session.pages[page_index])
        session.pages[page_index] = shared
        return True

    def read_back(self, session_id: str, page_index: int) -> bytes:
        page = self._reserved(session_id).pages[page_index]
        assert page is not None
        return bytes(page.data)

    def restore(self, state: SessionState, num_kv_tokens: int) -> None:
        session = self._reserved(state.session_id)
        assert num_kv_tokens < state.num_tokens
        while len(session.pages) > -(-num_kv_tokens // PAGE):
            self._drop(session.pages.pop())
        session.state, session.num_kv, session.reservation = copy_of(state), num_kv_tokens, False

    def cancel(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        for page in session.pages if session else []:
            self._drop(page)

    def phase(self, session_id: str) -> EnginePhase:
        session = self._get(session_id)
        if session.frozen:
            return EnginePhase.FROZEN
        return EnginePhase.HELD if session.held else session.phase

    def sessions(self) -> dict[str, EnginePhase]:
        return {session_id: self.phase(session_id) for session_id, s in self._sessions.items() if not s.reservation}

    def has_work(self) -> bool:
        return any(self._runnable(s) for s in self._sessions.values())

    def step(self) -> list[TokenEvent | SessionFailure]:
        if self.fail_step is not None:
            error, self.fail_step = self.fail_step, None
            raise error
        if self._step_seconds:
            time.sleep(self._step_seconds)
        self._steps += 1
        events: list[TokenEvent | SessionFailure] = []
        for session in [s for s in self._sessions.values() if self._runnable(s)]:
            event = for_session(session.state.session_id, partial(self._advance, session))
            if event is not None:
                events.append(event)
                if isinstance(event, SessionFailure) or event.finish_reason is not None:
                    self.cancel(event.session_id)
        return events

    def stats(self) -> EngineStats:
        phases = list(self.sessions().values())
        return EngineStats(
            running=sum(p in (EnginePhase.PREFILL, EnginePhase.DECODE) for p in phases),
            waiting=phases.count(EnginePhase.WAITING),
            held=phases.count(EnginePhase.HELD),
            frozen=phases.count(EnginePhase.FROZEN),
            pages_total=self.num_pages,
            pages_free=self._free,
            page_bytes=self.page_bytes,
            kv_bytes_per_token=self.page_bytes / PAGE,
            prompt_tokens_total=self._prompted,
            generated_tokens_total=self._generated,
            preemptions_total=self._preempted,
            steps_total=self._steps,
        )

    def check_integrity(self) -> None:
        held = {id(p): p for s in self._sessions.values() for p in s.pages if p is not None}
        refs = dict.fromkeys(held, 0)
        for session in self._sessions.values():
            for page in session.pages:
                refs[id(page)] += 1
        assert all(held[key].refs == count for key, count in refs.items()), "reference counts are wrong"
        assert self._free + len(held) == self.num_pages, f"{self._free} free + {len(held)} held != {self.num_pages}"

    # -- for tests

    def preempt(self, session_id: str) -> None:
        """Takes a session's pages away; it recomputes them."""
        session = self._get(session_id)
        while session.pages:
            self._drop(session.pages.pop())
        session.num_kv, session.phase = 0, EnginePhase.WAITING
        self._preempted += 1

    # -- inside

    def _get(self, session_id: str) -> StoredSession:
        session = self._sessions.get(session_id)
        if session is None or session.reservation:
            raise UnknownSessionError(f"session {session_id} is not here")
        return session

    def _reserved(self, session_id: str) -> StoredSession:
        session = self._sessions.get(session_id)
        if session is None or not session.reservation:
            raise UnknownSessionError(f"no reservation of session {session_id}")
        return session

    def _runnable(self, session: StoredSession) -> bool:
        if session.frozen or session.reservation:
            return False
        return session.num_kv < len(session.ids) - 1 if session.held else True

    def _advance(self, session: StoredSession) -> TokenEvent | None:
        ids = session.ids
        todo = len(ids) - session.num_kv - (1 if session.held else 0)
        count = min(todo, self._chunk)
        need = -(-(session.num_kv + count) // PAGE) - len(session.pages)
        if need > self._free:
            session.phase = EnginePhase.WAITING
            return None
        session.pages += [self._take() for _ in range(need)]
        for at in range(session.num_kv, session.num_kv + count):
            page, slot = session.pages[at // PAGE], at % PAGE
            assert page is not None
            size = self.page_bytes // PAGE
            page.data[slot * size : (slot + 1) * size] = kv_slot(
                ids[: at + 1], self.descriptor.weights_dtype, self.kv_cache, self._scale
            )
        session.num_kv += count
        self._prompted += count if count > 1 else 0
        session.phase = EnginePhase.PREFILL
        if session.held or session.num_kv < len(ids):
            return None
        session.phase = EnginePhase.DECODE
        return self._sample(session)

    def _sample(self, session: StoredSession) -> TokenEvent:
        state = session.state
        if error := self.fail_session.pop(state.session_id, None):
            raise error
        stored = b"".join(bytes(p.data) for p in session.pages if p is not None)
        token = next_token(state, stored, self.descriptor.weights_dtype)
        state.output_token_ids.append(token)
        self._generated += 1
        index = len(state.output_token_ids) - 1
        finish = "length" if index + 1 >= state.sampling.max_tokens else None
        digest = output_digest(state.output_token_ids) if finish else None
        text = f"{token:02x}"
        state.emitted_chars += len(text)
        return TokenEvent(state.session_id, index, token, text, finish, (), digest)

    def _take(self) -> StoredPage:
        assert self._free > 0
        self._free -= 1
        return StoredPage(bytearray(self.page_bytes))

    def _drop(self, page: StoredPage | None) -> None:
        if page is None:
            return
        page.refs -= 1
        if page.refs == 0:
            self._free += 1
            self._forget(page)

    def _forget(self, page: StoredPage) -> None:
        if page.content_hash is not None and self._by_hash.get(page.content_hash) is page:
            del self._by_hash[page.content_hash]
        page.content_hash = None


def undisturbed(
    prompt: list[int], num_tokens: int, *, seed: int = 0, weights: str = "bf16", kv_cache: str = "bf16"
) -> list[int]:
    """The outputs of a session that never moved."""
    engine = EngineDouble(weights=weights, kv_cache=kv_cache)
    engine.submit(SessionState("x", "m", list(prompt), sampling=Sampling(max_tokens=num_tokens, seed=seed)))
    out: list[int] = []
    while engine.has_work():
        out += [e.token_id for e in engine.step() if isinstance(e, TokenEvent)]
    return out
