"""The source's end of one move of a random walk: the product's steps, one message at a time, over the walk's network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from kvroll.v1 import session_pb2 as spb
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.precision.sealing import Sealing
from kvroll_core.words import VerdictKind
from kvroll_worker.kv.page_hash import content_hash
from kvroll_worker.move import codec
from kvroll_worker.move.errors import MoveFailedError
from kvroll_worker.move.messages import PrepareAnswer
from kvroll_worker.move.source.end import Destination, SessionView, SourceEnd
from kvroll_worker.move.source.transfer import view_of
from kvroll_worker.own.held import Held
from kvroll_worker.request import EngineError

if TYPE_CHECKING:
    from tests.wire.walk_worker import WalkWorker


@dataclass(frozen=True)
class Push:
    """All messages of one round."""

    requests: tuple[spb.PushRequest, ...]


@dataclass(frozen=True)
class Refused:
    """A call that ended by an error."""

    reason: str


@dataclass(frozen=True)
class Call:
    """A call between workers on its way, or the answer to one; `serial` says to which request of its source an answer belongs."""

    to: str
    migration_id: str
    content: Message | Push | Refused
    sender: str = ""
    serial: int = 0


class WalkMove:
    """The source's coroutine, cut into its steps: a round of what will not change, freeze, a round of the rest, Prepare."""

    def __init__(
        self, worker: "WalkWorker", held: Held, target: "WalkWorker", migration_id: str, kind: VerdictKind
    ) -> None:
        self.worker = worker
        sealing = Sealing(target.engine.descriptor.kv_form, 0)
        to = Destination(codec.peer_from_wire(target.host.ref), False, sealing, target.engine.page_bytes)
        self.end = SourceEnd(worker.ledger, held, to, kind, migration_id)
        self.sealing = sealing
        self.serial = 0
        self.here: set[int] = set()
        self.final: SessionView | None = None
        self._tries = 0
        self._guarded(self._offer)

    def heard(self, serial: int, content: Message | Push | Refused) -> None:
        """The answer to the newest request; one to an older request, or a second one, comes to nobody."""
        if serial == self.serial:
            self.serial += 1
            self._guarded(lambda: self._take(content))

    def give_up(self, reason: str) -> None:
        self.serial += 1
        self.worker.host.effects.run(self.end.give_up(reason))

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (MoveFailedError, EngineError) as error:
            self.give_up(str(error))

    def _take(self, content: Message | Push | Refused) -> None:
        match content:
            case spb.OfferResponse():
                self.here = self.end.offered(codec.offer_answer_from_wire(content))
                view = view_of(self.worker.port, self.end.move.session_id)
                self._push(view, view.final_pages(self.sealing))
            case spb.PushResponse():
                self.end.check()
                self.here -= set(content.missing_pages)
                if self.final is None:
                    self._freeze()
                else:
                    self._prepare(self.final)
            case spb.PrepareResponse():
                self._prepared(codec.prepare_answer_from_wire(content))
            case Refused(reason):
                raise MoveFailedError(reason)
            case _:
                raise AssertionError(content)

    def _offer(self) -> None:
        engine, session_id = self.worker.engine, self.end.move.session_id
        view = view_of(self.worker.port, session_id)
        hashes = tuple(self._hash(i) for i in view.final_pages(self.sealing)) if self.end.paged else ()
        here = codec.peer_from_wire(self.worker.host.ref)
        offer = self.end.offer(here, engine.descriptor, view, hashes, across_weights=False)
        self._ask(codec.offer_to_wire(offer, self.end.move.target.instance_id))

    def _push(self, view: SessionView, indexes: Sequence[int]) -> None:
        about = {
            "migration_id": self.end.move.migration_id,
            "session_id": self.end.move.session_id,
            "reservation_generation": self.end.generation,
        }
        if not self.end.paged:
            ids = spb.TokenIds(from_index=0, ids=view.state.output_token_ids)
            self._ask(Push((spb.PushRequest(**about, token_ids=ids),)))  # type: ignore[arg-type]
            return
        todo = [i for i in indexes if i not in self.here]
        pages = [page for i in todo for page in self._page(i, view.num_kv_tokens)]
        self.here |= set(todo)
        self._ask(Push(tuple(spb.PushRequest(**about, page=page) for page in pages)))  # type: ignore[arg-type]

    def _freeze(self) -> None:
        self.end.may_freeze()
        engine, session_id = self.worker.engine, self.end.move.session_id
        engine.freeze(session_id)
        self.final = self.end.frozen(view_of(self.worker.port, session_id))
        self._push(self.final, self.final.pages)

    def _prepare(self, final: SessionView) -> None:
        hashes = tuple(self._hash(i) for i in final.pages) if self.end.paged else ()
        self.prepare = codec.signed(self.end.prepare(final, hashes))
        self._ask(codec.prepare_to_wire(self.prepare))

    def _prepared(self, answer: PrepareAnswer) -> None:
        bad = self.end.prepared(self.prepare, answer)
        if not bad:
            self.worker.host.effects.run(self.end.commit(self.worker.world.now))
            return
        self._tries += 1
        if self._tries > 2 or self.final is None:
            raise MoveFailedError(f"pages {bad} did not verify")
        self.here -= set(bad)
        self._push(self.final, bad)

    def _page(self, index: int, num_kv_tokens: int) -> list[spb.Page]:
        data = self._read(index)
        valid = min(PAGE_TOKENS, num_kv_tokens - index * PAGE_TOKENS)
        return codec.page_to_wire(index, valid, content_hash(data), data)

    def _hash(self, index: int) -> bytes:
        return content_hash(self._read(index))

    def _read(self, index: int) -> bytes:
        return self.worker.engine.read_page(self.end.move.session_id, index, self.sealing.kv_format)

    def _ask(self, content: Message | Push) -> None:
        move = self.end.move
        self.worker.world.calls.append(
            Call(move.target.instance_id, move.migration_id, content, self.worker.instance_id, self.serial)
        )
