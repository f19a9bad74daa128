"""The source's side of one move: Offer, Push rounds while the session decodes on, freeze, last delta, Prepare, TransferOwnership."""

import uuid
from dataclasses import dataclass
from itertools import takewhile

import grpc
import grpc.aio

from kvroll.v1 import session_pb2 as spb
from kvroll_core.budget import page_window
from kvroll_core.words import VerdictKind
from kvroll_worker.move.codec import (
    offer_answer_from_wire,
    offer_to_wire,
    peer_from_wire,
    prepare_answer_from_wire,
    prepare_to_wire,
    signed,
)
from kvroll_worker.move.errors import MoveFailedError
from kvroll_worker.move.port import HostPort
from kvroll_worker.move.source.attempt import MovePhase
from kvroll_worker.move.source.end import Destination, SessionView, SourceEnd
from kvroll_worker.move.source.pace import MAX_ROUNDS, TokenBucket, another_round
from kvroll_worker.move.source.pushing import PagePusher
from kvroll_worker.move.source.shared_pages import SharedPages
from kvroll_worker.own.held import Held
from kvroll_worker.port import EnginePort
from kvroll_worker.request import EngineError

_OFFER_SECONDS = 15.0
_PREPARE_SECONDS = 30.0
_REPLAY_ROUND_SECONDS = 600.0  # the target prefills the whole context in the first one
_LAST_TOKENS = 16  # fewer than a step of the target computes at once: another round would only wait for one more step
_PREPARE_TRIES = 3


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


def view_of(engine: EnginePort, session_id: str) -> SessionView:
    """On the engine's thread: the session as it stands between two steps."""
    window = page_window(engine.shape, engine.asked.max_batch_tokens, engine.asked.precision.kv_cache)
    return SessionView(engine.snapshot(session_id), engine.num_kv_tokens(session_id), window)


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
        end = SourceEnd(self._host.ledger, held, to, kind, str(uuid.uuid4()))
        try:
            return await self._attempt(end, to, across_weights, max_downtime_seconds)
        except grpc.aio.AioRpcError as error:
            text = f"{error.code().name}: {error.details()}"
            self._host.effects.run(end.give_up(text))
            raise MoveFailedError(f"{to.worker.worker_id}: {text}") from error
        except EngineError as error:
            self._host.effects.run(end.give_up(str(error)))
            raise MoveFailedError(str(error)) from error
        except BaseException as error:
            self._host.effects.run(end.give_up(str(error) or type(error).__name__))
            raise

    async def _attempt(
        self, end: SourceEnd, to: Destination, across_weights: bool, max_downtime_seconds: float
    ) -> MoveReport:  # fmt: skip
        started = self._host.now()
        move, view = end.move, await self._look(end)
        pusher = PagePusher(self._host, end, to.sealing, to.page_bytes, self.bucket, self._shared, view.window)
        if end.paged:
            view = await self._hash(end, pusher, view)
        await self._offer(end, to, view, pusher, across_weights)
        if end.paged:
            await self._copy(end, pusher, view, max_downtime_seconds)
        else:
            await self._copy_ids(end, len(view.state.output_token_ids))
        began = self._host.now()
        final = await self._freeze(end, pusher)
        if end.paged:
            await pusher.push(final.pages, final.num_kv_tokens)
            end.check()
        hashes = await self._prepare(end, pusher, final)
        self._host.effects.run(end.commit(self._host.now()))
        await self._host.effects.ended(move)
        if move.phase is not MovePhase.RELEASED or move.reason != "committed":
            raise MoveFailedError(move.reason)
        replayed = 0 if end.paged else final.state.num_tokens
        now = self._host.now()
        return MoveReport(
            move.kind,
            pusher.wire_bytes,
            hashes,
            pusher.sent_hashes,
            now - began,
            replayed,
            now - started,
            to.page_bytes,
        )

    async def _look(self, end: SourceEnd) -> SessionView:
        view = await self._host.call(lambda engine: view_of(engine, end.move.session_id))
        end.check()
        return view

    async def _hash(self, end: SourceEnd, pusher: PagePusher, view: SessionView) -> SessionView:
        """Hashes the final pages. The session decodes on meanwhile: where its windows pass pages, it is looked at once more."""
        await pusher.hash_pages(view.final_pages(pusher.sealing), view.num_kv_tokens)
        end.check()
        return await self._look(end) if view.window.tokens else view

    async def _offer(
        self, end: SourceEnd, to: Destination, view: SessionView, pusher: PagePusher, across_weights: bool
    ) -> None:  # fmt: skip
        known = takewhile(pusher.hashes.__contains__, view.final_pages(pusher.sealing))
        offer = end.offer(
            peer_from_wire(self._host.ref), self._host.descriptor, view, tuple(pusher.hashes[i] for i in known),
            across_weights=across_weights,
        )  # fmt: skip
        request = offer_to_wire(offer, to.worker.instance_id)
        response: spb.OfferResponse = await self._host.peers.stub(to.worker).Offer(request, timeout=_OFFER_SECONDS)
        pusher.here = end.offered(offer_answer_from_wire(response))

    async def _copy(self, end: SourceEnd, pusher: PagePusher, view: SessionView, max_downtime_seconds: float) -> None:
        """Pre-copy rounds: full pages, or the sealed ones where the target seals, never change: each round carries those new since."""
        rate, rounds = 0.0, 0
        while True:
            left = [i for i in view.final_pages(pusher.sealing) if i not in pusher.here]
            if not another_round(rounds, len(left), pusher.page_bytes, rate, max_downtime_seconds):
                return
            began, sent = self._host.now(), pusher.wire_bytes
            await pusher.push(left, view.num_kv_tokens)
            end.check()
            rate = (pusher.wire_bytes - sent) / max(1e-6, self._host.now() - began)
            rounds += 1
            newer = await self._look(end)
            if newer.num_kv_tokens < view.num_kv_tokens:
                raise MoveFailedError("the session was preempted while it was copied")
            view = newer

    async def _copy_ids(self, end: SourceEnd, sent: int) -> None:
        """Rounds of token ids; each answer means that the target has prefilled so far."""
        for round_index in range(MAX_ROUNDS):
            outputs = (await self._look(end)).state.output_token_ids
            call = self._host.peers.stub(end.move.target).Push(timeout=_REPLAY_ROUND_SECONDS)
            request = spb.PushRequest(
                migration_id=end.move.migration_id,
                session_id=end.move.session_id,
                reservation_generation=end.generation,
                token_ids=spb.TokenIds(from_index=sent, ids=outputs[sent:]),
            )
            await call.write(request)
            await call.done_writing()
            await call
            end.check()
            new, sent = len(outputs) - sent, len(outputs)
            if new <= _LAST_TOKENS and round_index:
                return

    async def _freeze(self, end: SourceEnd, pusher: PagePusher) -> SessionView:
        """Stops the session at a step border. Every token before it has reached the ledger when this returns."""
        end.may_freeze()

        def freeze(engine: EnginePort) -> SessionView:
            engine.freeze(end.move.session_id)
            frozen = view_of(engine, end.move.session_id)
            if end.paged:
                pusher.read_rest(engine, frozen.num_kv_tokens)
            return frozen

        return end.frozen(await self._host.call(freeze))

    async def _prepare(self, end: SourceEnd, pusher: PagePusher, final: SessionView) -> tuple[bytes, ...]:
        """Has the target verify everything; pages that it lacks are sent again."""
        bad: tuple[int, ...] = ()
        for _ in range(_PREPARE_TRIES):
            hashes = tuple(pusher.hashes[i] for i in final.pages) if end.paged else ()
            prepare = signed(end.prepare(final, hashes))
            response: spb.PrepareResponse = await self._host.peers.stub(end.move.target).Prepare(
                prepare_to_wire(prepare), timeout=_PREPARE_SECONDS
            )
            bad = end.prepared(prepare, prepare_answer_from_wire(response))
            if not bad:
                return hashes
            pusher.here -= set(bad)
            await pusher.push(bad, prepare.num_kv_tokens)
            end.check()
        raise MoveFailedError(f"pages {list(bad)[:8]} did not verify at the target after {_PREPARE_TRIES} tries")
