"""One Push after another: pages of one session, read between engine steps, cut into checked chunks, paced by the bucket."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc.aio

from kvroll.v1 import session_pb2 as spb
from kvroll_core.budget import PageWindow, pages_for
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.precision.sealing import Sealing
from kvroll_worker.kv.page_hash import content_hash
from kvroll_worker.move.codec import page_to_wire
from kvroll_worker.move.manifest import CHUNK_BYTES
from kvroll_worker.move.port import HostPort
from kvroll_worker.move.source.end import SourceEnd
from kvroll_worker.move.source.pace import TokenBucket
from kvroll_worker.move.source.shared_pages import SharedPages
from kvroll_worker.port import EnginePort

_READ_BYTES = 4 << 20
_BASE_SECONDS = 30.0
_SLOWEST_BYTES_PER_SECOND = 1 << 20


@dataclass(eq=False)
class PagePusher:
    """Sends pages of one move. `hashes` grows with every page read; `wire_bytes` counts page data that went out. Pages that every layer's
    window passes meanwhile are not sent: the session gives them back while it decodes on.
    """

    host: HostPort
    end: SourceEnd
    sealing: Sealing  # the target's: which format each page goes out in
    page_bytes: int
    bucket: TokenBucket
    shared: SharedPages
    window: PageWindow
    hashes: dict[int, bytes] = field(default_factory=dict)
    here: set[int] = field(default_factory=set)  # at the target, as far as this side knows
    frozen_pages: dict[int, bytes] = field(
        default_factory=dict
    )  # read in the same pause in which the session was frozen
    wire_bytes: int = 0
    _sent: set[int] = field(default_factory=set)

    @property
    def sent_hashes(self) -> tuple[bytes, ...]:
        """Of the pages whose data went out; one that filled meanwhile counts as it is now."""
        return tuple(self.hashes[index] for index in sorted(self._sent))

    async def hash_pages(self, indexes: Sequence[int], num_kv_tokens: int) -> None:
        """Reads pages to learn their hashes in the target's format."""
        for batch in self._batches(indexes):
            for index, data in (await self._read(batch, num_kv_tokens)).items():
                self.hashes[index] = content_hash(data)

    async def push(self, indexes: Sequence[int], num_kv_tokens: int) -> None:
        """Brings the pages to the target: final ones that another move is sending are waited for and then only named."""
        todo = [i for i in indexes if i not in self.here]
        full = [i for i in todo if i < self.sealing.final(num_kv_tokens)]
        await self.hash_pages([i for i in full if i not in self.hashes], num_kv_tokens)
        full = [i for i in full if i in self.hashes]
        by_hash = {self.hashes[i]: i for i in full}
        instance = self.end.move.target.instance_id
        mine, others = self.shared.claim(instance, list(by_hash))
        try:
            own = [by_hash[h] for h in mine]
            partial = [i for i in todo if i >= self.sealing.final(num_kv_tokens)]
            missing = await self._send(own + partial, num_kv_tokens, named=False)
        finally:
            self.shared.landed(instance, mine)
        named = sorted(set(by_hash.values()) - set(own))
        for event in others:
            await event.wait()
        if named:
            missing |= await self._send(named, num_kv_tokens, named=True)
        if missing:
            missing = await self._send(sorted(missing), num_kv_tokens, named=False)
        self.here |= set(todo) - missing

    async def _send(self, indexes: list[int], num_kv_tokens: int, *, named: bool) -> set[int]:
        if not indexes:
            return set()
        timeout = _BASE_SECONDS + len(indexes) * self.page_bytes / _SLOWEST_BYTES_PER_SECOND
        call = self.host.peers.stub(self.end.move.target).Push(timeout=timeout)
        try:
            for batch in self._batches(indexes):
                pages = dict.fromkeys(batch, b"") if named else await self._read(batch, num_kv_tokens)
                for index, data in pages.items():
                    await self._write_page(call, index, data, num_kv_tokens)
            await call.done_writing()
        except asyncio.InvalidStateError:
            pass  # the target ended the call: its reason comes with the response
        except BaseException:
            call.cancel()
            raise
        response: spb.PushResponse = await call
        return set(response.missing_pages)

    async def _write_page(
        self, call: "grpc.aio.StreamUnaryCall[spb.PushRequest, spb.PushResponse]", index: int, data: bytes, num_kv_tokens: int
    ) -> None:  # fmt: skip
        if data:
            self.hashes[index] = content_hash(data)
            self._sent.add(index)
        valid = min(PAGE_TOKENS, num_kv_tokens - index * PAGE_TOKENS)
        for page in page_to_wire(index, valid, self.hashes[index], data):
            delay = self.bucket.delay_seconds(len(page.data), self.host.now())
            if delay > 0:
                await asyncio.sleep(delay)
            self.wire_bytes += len(page.data)
            await call.write(self._request(page))

    def _request(self, page: spb.Page) -> spb.PushRequest:
        return spb.PushRequest(
            migration_id=self.end.move.migration_id,
            session_id=self.end.move.session_id,
            reservation_generation=self.end.generation,
            page=page,
        )

    async def _read(self, indexes: Sequence[int], num_kv_tokens: int) -> dict[int, bytes]:
        if all(index in self.frozen_pages for index in indexes):
            return {index: self.frozen_pages[index] for index in indexes}
        return await self.host.call(lambda engine: self._read_held(engine, indexes, num_kv_tokens))

    def _read_held(self, engine: EnginePort, indexes: Sequence[int], num_kv_tokens: int) -> dict[int, bytes]:
        first = self.window.first_page(engine.num_kv_tokens(self.end.move.session_id))
        return {index: self._read_one(engine, index, num_kv_tokens) for index in indexes if index >= first}

    def _read_one(self, engine: EnginePort, index: int, num_kv_tokens: int) -> bytes:
        return engine.read_page(self.end.move.session_id, index, self.sealing.form(index, num_kv_tokens))

    def read_rest(self, engine: EnginePort, num_kv_tokens: int) -> None:
        """On the engine's thread: reads what the target lacks of a session that was just frozen, which saves waiting for another step."""
        needed = range(self.window.first_page(num_kv_tokens), pages_for(num_kv_tokens))
        rest = [i for i in needed if i not in self.here]
        self.frozen_pages = {i: self._read_one(engine, i, num_kv_tokens) for i in rest}

    def _batches(self, indexes: Sequence[int]) -> list[Sequence[int]]:
        """So many pages between two steps that the copy goes on and other sessions hardly wait."""
        size = max(1, min(_READ_BYTES // max(1, self.page_bytes), CHUNK_BYTES))
        return [indexes[at : at + size] for at in range(0, len(indexes), size)]
