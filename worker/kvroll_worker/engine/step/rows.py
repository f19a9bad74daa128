"""The step's rows as bound index buffers, and the page table with one row a slot; filled in place, never allocated again."""

from typing import Any

import numpy as np

from kvroll_core.budget import pages_for
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.precision.sealing import Sealing
from kvroll_kernels.arrays import INT32, INT64, Array, zeros
from kvroll_kernels.ops import Buffer, Ops
from kvroll_worker.engine.schedule.scheduler import Chunk


class Rows:
    """Token id, position, sequence and KV place of every row of a step."""

    def __init__(self, ops: Ops, max_rows: int, max_sessions: int, max_model_len: int, sealing: Sealing) -> None:
        self.max_pages = pages_for(max_model_len)
        self._kept: list[Array] = []
        self._token_ids, self.token_ids = self._bind(ops, (max_rows,), INT32)
        self._positions, self.positions = self._bind(ops, (max_rows,), INT32)
        self._sequences, self.sequences = self._bind(ops, (max_rows,), INT32)
        self._lengths, self.lengths = self._bind(ops, (max_rows,), INT32)
        self._slots, self.slots = self._bind(ops, (max_rows,), INT32)
        self._page_ids, self.page_ids = self._bind(ops, (max_rows,), INT64)
        self._table, self.page_table = self._bind(ops, (max_sessions, self.max_pages), INT64)
        self._open_table: Array = self._table
        self.open_table: Buffer | None = None  # where rows are written: without open pages, the one table
        if sealing.seals:
            self._open_table, self.open_table = self._bind(ops, (max_sessions, self.max_pages), INT64)
        self._counting = np.arange(max_model_len, dtype=np.int32)
        self.count = 0
        self.sampled: list[int] = []  # rows whose logits are wanted

    def fill(self, chunks: list[Chunk]) -> None:
        """Lays out the chunks one after the other."""
        self.sampled.clear()
        row = 0
        for session, start, length, samples in chunks:
            assert session.slot is not None
            if session.num_tabled < len(session.pages):
                self._table[session.slot, session.num_tabled : len(session.pages)] = session.pages[session.num_tabled :]
                session.num_tabled = len(session.pages)
            if session.num_open_tabled < len(session.open_pages):
                self._fill_open(session.slot, session.open_pages)
                session.num_open_tabled = len(session.open_pages)
            end = row + length
            self._token_ids[row:end] = session.ids[start : start + length]
            self._positions[row:end] = self._counting[start : start + length]
            self._sequences[row:end] = session.slot
            row = end
            if samples:
                self.sampled.append(end - 1)
        self.count = row
        positions = self._positions[:row]
        self._page_ids[:row] = self._open_table[self._sequences[:row], positions // PAGE_TOKENS]
        self._slots[:row] = positions % PAGE_TOKENS
        self._lengths[:row] = positions + 1

    def _fill_open(self, slot: int, open_pages: list[int]) -> None:
        """Which open page each page is or was in: the ring, over and over. Of a ring that still grows only its first round is used."""
        self._open_table[slot] = np.resize(np.array(open_pages, dtype=INT64), self.max_pages)

    def _bind(self, ops: Ops, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Array, Buffer]:
        array = zeros(shape, dtype)
        self._kept.append(array)
        return array, ops.buffer(array)
