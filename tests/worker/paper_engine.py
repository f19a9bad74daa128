"""An engine whose model is arithmetic on the page table: real scheduler, cache, spill, landing and sampling; any page in a wrong place
changes every later token.

The KV of a position is a hash of its id and of the KV before it, read through the page table; a row of logits is drawn from the KV of
all positions that its windows see. So a stale, foreign, torn or half-written page cannot go unseen, and a step takes microseconds.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kvroll_core.budget import PageWindow
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.precision.sealing import OPEN_FORMAT, SEALED_FORMATS
from kvroll_worker.engine import engine as engine_module
from kvroll_worker.engine.engine import Engine
from kvroll_worker.engine.schedule.open_pages import due_seals
from kvroll_worker.engine.schedule.scheduler import Chunk
from kvroll_worker.engine.session import EngineSession
from kvroll_worker.kv import mixed_storage
from kvroll_worker.request import SessionState, TokenEvent
from tests.doubles.engine_settings import engine_config
from tests.worker.tiny_model import memory_for

VOCAB = 264
_PRIME = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def sealed(page: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Other and fewer numbers than the open page's: who reads a page in the wrong form goes on differently."""
    return (page ^ (page >> 23)).astype(np.uint32)


class PaperStorage:
    """KV as one uint64 a token slot, uint32 in a sealed page."""

    def __init__(self, ops: Any, layout: Any, num_pages: int, num_open: int = 1, residual_tokens: int = 0) -> None:
        self.kv = np.zeros((num_pages, PAGE_TOKENS), dtype=np.uint32 if layout.is_sealed else np.uint64)
        self.page_bytes = self.kv[0].nbytes
        plain = replace(layout, kv_format=OPEN_FORMAT)
        self.open = PaperStorage(ops, plain, num_open) if layout.is_sealed else None

    def read(self, page_id: int, valid_tokens: int, kv_format: str) -> bytes:
        page = self.kv[page_id].copy()
        page[valid_tokens:] = 0
        if kv_format in SEALED_FORMATS and page.dtype == np.uint64:
            assert valid_tokens == PAGE_TOKENS
            return bytes(sealed(page).data)
        return bytes(page.data)

    def read_raw(self, page_id: int) -> bytes:
        return bytes(self.kv[page_id].data)

    def write(self, page_id: int, data: bytes) -> None:
        self.kv[page_id] = np.frombuffer(data, dtype=self.kv.dtype)

    def copy(self, source: int, target: int) -> None:
        self.kv[target] = self.kv[source]


class PaperRunner:
    """Keeps a page table as the real one does: a row a slot, filled from `num_tabled` on."""

    def __init__(self, ops: Any, spec: Any, weights: Any, storage: PaperStorage, *sizes: Any) -> None:
        self._sealed = storage.kv
        self._kv = storage.kv if storage.open is None else storage.open.kv
        self._window = max(spec.windows) if all(spec.windows) else 0
        self._table: dict[int, list[int]] = {}
        self._open_table: dict[int, list[int]] = {}
        self._rows: list[npt.NDArray[np.float32]] = []
        self.max_logits = 64
        self.kernel_seconds = 0.0

    def forward(self, chunks: list[Chunk]) -> npt.NDArray[np.float32]:
        for chunk in chunks:
            self._fill(chunk.session)
        self._rows = [row for chunk in chunks for row in self._compute(chunk)]
        ends = np.cumsum([chunk.length for chunk in chunks]) - 1
        return self.logits([int(end) for end, chunk in zip(ends, chunks, strict=True) if chunk.samples])

    def logits(self, sampled: list[int]) -> npt.NDArray[np.float32]:
        return np.stack([self._rows[row] for row in sampled]) if sampled else np.zeros((0, VOCAB), np.float32)

    def hidden(self, first_row: int, count: int) -> npt.NDArray[np.float32]:
        return np.stack(self._rows[first_row : first_row + count])

    def _fill(self, session: EngineSession) -> None:
        assert session.slot is not None
        row = self._table.setdefault(session.slot, [])
        row[session.num_tabled :] = session.pages[session.num_tabled :]
        session.num_tabled = len(session.pages)
        ring = self._open_table.setdefault(session.slot, [])
        if session.num_open_tabled < len(session.open_pages):
            ring[:] = session.open_pages
            session.num_open_tabled = len(session.open_pages)

    def _pages_at(self, session: EngineSession, position: int) -> tuple[npt.NDArray[np.int64], int]:
        """The page table as the token at that position reads it, and how many of its pages are sealed ones."""
        assert session.slot is not None
        border = session.sealing.sealed(position)
        pages, ring = self._table[session.slot], self._open_table[session.slot]
        if not session.sealing.seals:
            return np.array(pages), 0
        behind = [ring[i % session.sealing.open_pages] for i in range(border, position // PAGE_TOKENS + 1)]
        return np.array(pages[:border] + behind), border

    def _compute(self, chunk: Chunk) -> list[npt.NDArray[np.float32]]:
        session, start, length, samples = chunk
        for opened, page in due_seals(session, start):
            self._sealed[page] = sealed(self._kv[opened])
        pages, border = self._pages_at(session, start)
        assert border == self._pages_at(session, start + length - 1)[1], "a step reads one form of each page"
        rows = []
        for position in range(start, start + length):
            before = self._at(pages, position - 1) if position and self._window != 1 else 1
            value = ((before ^ session.ids[position]) * _PRIME + position) & _MASK
            self._kv[pages[position // PAGE_TOKENS], position % PAGE_TOKENS] = value ^ (value >> 29)
            wanted = session.scores_prompt or (samples and position == start + length - 1)
            rows.append(self._row(pages, border, position + 1) if wanted else _NO_ROW)
        return rows

    def _at(self, pages: npt.NDArray[np.int64], position: int) -> int:
        return int(self._kv[pages[position // PAGE_TOKENS], position % PAGE_TOKENS])

    def _row(self, pages: npt.NDArray[np.int64], border: int, tokens: int) -> npt.NDArray[np.float32]:
        both = np.concatenate([self._sealed[pages[:border]].astype(np.uint64), self._kv[pages[border:]]])
        seen = both.reshape(-1)[:tokens] * np.arange(1, 2 * tokens, 2, dtype=np.uint64)
        seen = seen[-self._window :] if self._window else seen
        return np.random.default_rng(int(np.bitwise_xor.reduce(seen))).standard_normal(VOCAB).astype(np.float32)


_NO_ROW = np.zeros(VOCAB, dtype=np.float32)


def paper_engine(model: Path, *, pages: int, **config: Any) -> Engine:
    """An engine with that many usable pages."""
    defaults: dict[str, Any] = {
        "max_sessions": 6,
        "max_batch_tokens": 64,
        "max_model_len": 192,
        "threads": 1,
        "ops": "reference",
        "prefix_cache": "On",
        "residual_tokens": 32,
        "kv_memory_bytes": memory_for(config.get("kv_cache", "bf16"), pages),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "Runner", PaperRunner)
        patch.setattr(mixed_storage, "PageStorage", PaperStorage)
        patch.setattr(engine_module, "load_weights", lambda *_, **__: None)
        return Engine(engine_config(model, **{**defaults, **config}))


@cache
def _plain_engine(model: Path, kv_cache: str) -> Engine:
    return keeping_all(paper_engine(model, pages=16, prefix_cache="Off", kv_cache=kv_cache))


def keeping_all(engine: Engine) -> Engine:
    """The same engine, to which no page ever lies outside the windows."""
    engine.planned = replace(engine.planned, window=PageWindow())
    return engine


def tokens_alone(model: Path, state: SessionState, kv_cache: str = "bf16") -> list[int]:
    """What an undisturbed run of the session generates, without cache, with room for all and every page kept."""
    engine = _plain_engine(model, kv_cache)
    engine.submit(state)
    tokens = []
    while engine.has_work():
        tokens += [event.token_id for event in engine.step() if isinstance(event, TokenEvent)]
    return tokens
