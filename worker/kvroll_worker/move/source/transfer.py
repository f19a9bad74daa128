"""The source's side of one move: Offer, Push rounds while the session decodes on, freeze, last delta, Prepare, TransferOwnership."""

import uuid
from dataclasses import dataclass, replace
from itertools import takewhile

import grpc
import grpc.aio
import structlog

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import session_pb2 as spb
from kvroll_core.budget import PageWindow, page_window, pages_for
from kvroll_core.precision.sealing import Sealing
from kvroll_core.words import VerdictKind
from kvroll_worker.move.errors import MoveFailedError, MoveRefusedError
from kvroll_worker.move.manifest import root_digest
from kvroll_worker.move.port import HostPort
from kvroll_worker.move.source.attempt import MovePhase, SourceMove
from kvroll_worker.move.source.pace import MAX_ROUNDS, TokenBucket, another_round
from kvroll_worker.move.source.pushing import PagePusher
from kvroll_worker.move.source.shared_pages import SharedPages
from kvroll_worker.own import effects as fx
from kvroll_worker.own.held import Held, HeldPhase
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.port import EnginePort
from kvroll_worker.request import EngineError, SessionState
from kvroll_worker.wire.codec import KIND_FROM_WIRE, KIND_TO_WIRE, descriptor_to_wire, epoch_to_wire, state_to_wire

_log = structlog.get_logger("kvroll.worker.transfer")
_OFFER_SECONDS = 15.0
_PREPARE_SECONDS = 30.0
_REPLAY_ROUND_SECONDS = 600.0  # the target prefills the whole context in the first one
_LAST_TOKENS = 16  # fewer than a step of the target computes at once: another round would only wait for one more step
_PREPARE_TRIES = 3


@dataclass(frozen=True)
class Destination:
    """Where a session may go; `page_bytes` and `sealing`, with its KV format, are the target's."""

    worker: pb.WorkerRef
    same_revision: bool
    sealing: Sealing
    page_bytes: int


@dataclass(frozen=True)
class MoveReport:
    """A move that the gateway committed. Bytes are page data; `page_hashes` are of the pages that the session needed, `sent_hashes`
    of those among them that the target lacked, `page_bytes` one's size at the target; `seconds` from the first look to the commit.
    """

    kind: VerdictKind
    wire_bytes: int
    page_hashes: tuple[bytes, ...]
    sent_hashes: tuple[bytes, ...]
    downtime_seconds: float
    tokens_replayed: int
    seconds: float
    page_bytes: int


@dataclass(frozen=True)
class _View:
    """A session between two steps."""

    state: SessionState
    num_kv_tokens: int
    window: PageWindow

    @property
    def first_page(self) -> int:
        """The first page that is held: those before lie outside every layer's window."""
        return self.window.first_page(self.num_kv_tokens)

    def final_pages(self, sealing: Sealing) -> range:
        """Indexes of the held pages whose bytes, in the form that the target keeps them in, will not change."""
        return range(self.first_page, sealing.final(self.num_kv_tokens))

    @property
    def pages(self) -> range:
        """Indexes of all held pages with KV."""
        return range(self.first_page, pages_for(self.num_kv_tokens))


def _view(engine: EnginePort, session_id: str) -> _View:
    window = page_window(engine.shape, engine.asked.max_batch_tokens, engine.asked.precision.kv_cache)
    return _View(engine.snapshot(session_id), engine.num_kv_tokens(session_id), window)


class Mover:
    """Carries moves out; one for a worker, so that all its moves share one bucket and know each other's pages."""

    def __init__(self, host: HostPort) -> None:
        self._host = host
        self.bucket = TokenBucket()
        self._shared = SharedPages()

    async def move(
        self, held: Held, to: Destination, kind: VerdictKind, *, across_weights: bool, max_downtime_seconds: float
    ) -> MoveReport:  # fmt: skip
        """Moves one session; on any failure it goes on here.

        Raises:
            MoveFailedError: the session is still here, or ended or was cancelled meanwhile.
        """
        move = self._host.ledger.start_move(held, str(uuid.uuid4()), to.worker, kind)
        try:
            return await self._attempt(held, move, to, across_weights, max_downtime_seconds)
        except grpc.aio.AioRpcError as error:
            text = f"{error.code().name}: {error.details()}"
            self._give_up(held, move, text)
            raise MoveFailedError(f"{to.worker.worker_id}: {text}") from error
        except EngineError as error:
            self._give_up(held, move, str(error))
            raise MoveFailedError(str(error)) from error
        except BaseException as error:
            self._give_up(held, move, str(error) or type(error).__name__)
            raise

    def _give_up(self, held: Held, move: SourceMove, reason: str) -> None:
        self._host.run(self._host.ledger.abort_move(move, reason))
        here = self._host.ledger.sessions.get(held.session_id) is held
        if here and not held.frozen and held.phase is HeldPhase.RUNNING:  # cancelled while the engine was freezing it
            self._host.run([fx.Thaw(held.session_id)])

    async def _attempt(
        self, held: Held, move: SourceMove, to: Destination, across_weights: bool, max_downtime_seconds: float
    ) -> MoveReport:  # fmt: skip
        started = self._host.now()
        view = await self._look(move)
        pusher = PagePusher(self._host, move, to.sealing, to.page_bytes, 0, self.bucket, self._shared, view.window)
        pages = move.kind is not VerdictKind.REPLAY
        if pages:
            view = await self._hash(move, pusher, view)
        response = await self._offer(held, move, to, view, pusher, across_weights)
        pusher.generation = response.reservation_generation
        pusher.here = set(response.have_pages)
        if pages:
            await self._copy(move, pusher, view, max_downtime_seconds)
        else:
            await self._copy_ids(move, pusher.generation, len(view.state.output_token_ids))
        began = self._host.now()
        final = await self._freeze(held, move, to, pusher if pages else None)
        if pages:
            await pusher.push(final.pages, final.num_kv_tokens)
            _check(move)
        hashes = await self._prepare(move, pusher, final)
        self._host.run(self._host.ledger.transfer(move, self._host.now()))
        await self._host.ended(move)
        if move.phase is not MovePhase.RELEASED or move.reason != "committed":
            raise MoveFailedError(move.reason)
        replayed = 0 if pages else final.state.num_tokens
        now = self._host.now()
        return MoveReport(
            move.kind, pusher.wire_bytes, tuple(hashes), pusher.sent_hashes, now - began, replayed, now - started,
            to.page_bytes,
        )  # fmt: skip

    async def _look(self, move: SourceMove) -> _View:
        view = await self._host.call(lambda engine: _view(engine, move.session_id))
        _check(move)
        return view

    async def _hash(self, move: SourceMove, pusher: PagePusher, view: _View) -> _View:
        """Hashes the final pages. The session decodes on meanwhile: where its windows pass pages, it is looked at once more."""
        await pusher.hash_pages(view.final_pages(pusher.sealing), view.num_kv_tokens)
        _check(move)
        return await self._look(move) if view.window.tokens else view

    async def _offer(
        self, held: Held, move: SourceMove, to: Destination, view: _View, pusher: PagePusher, across_weights: bool
    ) -> spb.OfferResponse:  # fmt: skip
        record: SessionRecord = held.record
        request = spb.OfferRequest(
            migration_id=move.migration_id,
            target_instance_id=to.worker.instance_id,
            source=self._host.ref,
            descriptor=descriptor_to_wire(self._host.descriptor),
            state=state_to_wire(record.complete(view.state)),
            epoch=epoch_to_wire(move.epoch),
            allowed=[KIND_TO_WIRE[move.kind]],
            kv_across_weights=across_weights,
            page_hashes=[
                pusher.hashes[i] for i in takewhile(pusher.hashes.__contains__, view.final_pages(pusher.sealing))
            ],
            first_page=view.first_page,
        )
        response: spb.OfferResponse = await self._host.peers.stub(to.worker).Offer(request, timeout=_OFFER_SECONDS)
        _check(move)
        if KIND_FROM_WIRE.get(response.verdict.kind) is not move.kind:
            raise MoveRefusedError(f"{to.worker.worker_id} refused: {'; '.join(response.verdict.reasons)}")
        return response

    async def _copy(self, move: SourceMove, pusher: PagePusher, view: _View, max_downtime_seconds: float) -> None:
        """Pre-copy rounds: full pages, or the sealed ones where the target seals, never change: each round carries those new since."""
        rate, rounds = 0.0, 0
        while True:
            left = [i for i in view.final_pages(pusher.sealing) if i not in pusher.here]
            if not another_round(rounds, len(left), pusher.page_bytes, rate, max_downtime_seconds):
                return
            began, sent = self._host.now(), pusher.wire_bytes
            await pusher.push(left, view.num_kv_tokens)
            _check(move)
            rate = (pusher.wire_bytes - sent) / max(1e-6, self._host.now() - began)
            rounds += 1
            newer = await self._look(move)
            if newer.num_kv_tokens < view.num_kv_tokens:
                raise MoveFailedError("the session was preempted while it was copied")
            view = newer

    async def _copy_ids(self, move: SourceMove, generation: int, sent: int) -> None:
        """Rounds of token ids; each answer means that the target has prefilled so far."""
        for round_index in range(MAX_ROUNDS):
            outputs = (await self._look(move)).state.output_token_ids
            call = self._host.peers.stub(move.target).Push(timeout=_REPLAY_ROUND_SECONDS)
            request = spb.PushRequest(
                migration_id=move.migration_id,
                session_id=move.session_id,
                reservation_generation=generation,
                token_ids=spb.TokenIds(from_index=sent, ids=outputs[sent:]),
            )
            await call.write(request)
            await call.done_writing()
            await call
            _check(move)
            new, sent = len(outputs) - sent, len(outputs)
            if new <= _LAST_TOKENS and round_index:
                return

    async def _freeze(self, held: Held, move: SourceMove, to: Destination, pusher: PagePusher | None) -> _View:
        """Stops the session at a step border. Every token before it has reached the ledger when this returns."""
        if not self._host.ledger.is_attached(held.gateway_id):
            raise MoveFailedError(f"gateway {held.gateway_id} is away: nobody could take the new owner's word")

        def freeze(engine: EnginePort) -> _View:
            engine.freeze(move.session_id)
            frozen = _view(engine, move.session_id)
            if pusher is not None:
                pusher.read_rest(engine, frozen.num_kv_tokens)
            return frozen

        view = await self._host.call(freeze)
        _check(move)
        record: SessionRecord = held.record
        state = replace(
            record.complete(view.state), same_revision_moves=record.same_revision_moves + int(to.same_revision)
        )
        if len(state.output_token_ids) != held.log.next_index:
            found = f"the engine has {len(state.output_token_ids)} tokens, the stream {held.log.next_index}"
            raise MoveFailedError(f"engine and stream disagree: {found}")
        move.freeze(state)
        return replace(view, state=state)

    async def _prepare(self, move: SourceMove, pusher: PagePusher, final: _View) -> list[bytes]:
        """Has the target verify everything; pages that it lacks are sent again."""
        state = state_to_wire(final.state)
        paged = move.kind is not VerdictKind.REPLAY
        num_kv_tokens, first_page = (final.num_kv_tokens, final.first_page) if paged else (0, 0)
        for _ in range(_PREPARE_TRIES):
            hashes = [pusher.hashes[i] for i in final.pages] if paged else []
            digest = root_digest(state, hashes, num_kv_tokens, first_page)
            request = spb.PrepareRequest(
                migration_id=move.migration_id,
                reservation_generation=pusher.generation,
                state=state,
                page_hashes=hashes,
                root_digest=digest,
                epoch=epoch_to_wire(move.epoch),
                num_kv_tokens=num_kv_tokens,
                first_page=first_page,
            )
            response: spb.PrepareResponse = await self._host.peers.stub(move.target).Prepare(
                request, timeout=_PREPARE_SECONDS
            )
            _check(move)
            if not response.bad_pages:
                if response.root_digest != digest:
                    raise MoveFailedError("the target prepared something else than what was sent")
                return hashes
            pusher.here -= set(response.bad_pages)
            await pusher.push(list(response.bad_pages), num_kv_tokens)
            _check(move)
        raise MoveFailedError(
            f"pages {list(response.bad_pages)[:8]} did not verify at the target after {_PREPARE_TRIES} tries"
        )


def _check(move: SourceMove) -> None:
    """Raises MoveFailedError if the move ended while something was awaited."""
    if move.ended:
        raise MoveFailedError(move.reason)
