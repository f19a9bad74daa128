"""The source's end of one move as a pure machine: what is said to the target, and what its answers mean.

A worker's coroutine (`transfer`) carries the steps out and copies pages between them; a test takes them one by one.
"""

from dataclasses import dataclass, replace

from kvroll_core.budget import PageWindow, pages_for
from kvroll_core.compat import Descriptor
from kvroll_core.precision.sealing import Sealing
from kvroll_core.words import VerdictKind
from kvroll_worker.move.errors import MoveFailedError, MoveRefusedError
from kvroll_worker.move.messages import Offer, OfferAnswer, Peer, Prepare, PrepareAnswer
from kvroll_worker.own.effects import Effect, Thaw
from kvroll_worker.own.held import Held, HeldPhase
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.request import SessionState


@dataclass(frozen=True)
class Destination:
    """Where a session may go; `page_bytes` and `sealing`, with its KV format, are the target's."""

    worker: Peer
    same_revision: bool
    sealing: Sealing
    page_bytes: int


@dataclass(frozen=True)
class SessionView:
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


class SourceEnd:
    """One attempt to move one session away; a retry is another one, with another `migration_id`."""

    def __init__(self, ledger: Ledger, held: Held, to: Destination, kind: VerdictKind, migration_id: str) -> None:
        self._ledger = ledger
        self._held = held
        self._to = to
        self.generation = 0  # of the target's reservation
        self.move = ledger.start_move(held, migration_id, to.worker, kind)

    @property
    def paged(self) -> bool:
        """Whether pages move; else only token ids do, and the target computes them again."""
        return self.move.kind is not VerdictKind.REPLAY

    def check(self) -> None:
        """To be called after whatever was waited for.

        Raises:
            MoveFailedError: the move ended meanwhile.
        """
        if self.move.ended:
            raise MoveFailedError(self.move.reason)

    def offer(
        self, here: Peer, descriptor: Descriptor, view: SessionView, page_hashes: tuple[bytes, ...], *, across_weights: bool
    ) -> Offer:  # fmt: skip
        """The manifest without pages; `page_hashes` begin at the view's first page."""
        return Offer(
            self.move.migration_id,
            here,
            descriptor,
            self._held.record.complete(view.state),
            self.move.epoch,
            frozenset({self.move.kind}),
            across_weights,
            page_hashes,
            view.first_page,
        )

    def offered(self, answer: OfferAnswer) -> set[int]:
        """The pages that the target has already.

        Raises:
            MoveRefusedError: its verdict is another one than was asked for.
            MoveFailedError: the move ended meanwhile.
        """
        self.check()
        if answer.verdict.kind is not self.move.kind:
            raise MoveRefusedError(f"{self._to.worker.worker_id} refused: {'; '.join(answer.verdict.reasons)}")
        self.generation = answer.generation
        return set(answer.have_pages)

    def may_freeze(self) -> None:
        """Raises MoveFailedError where nobody could answer for the session after it is frozen."""
        if not self._ledger.is_attached(self._held.gateway_id):
            raise MoveFailedError(f"gateway {self._held.gateway_id} is away: nobody could take the new owner's word")

    def frozen(self, view: SessionView) -> SessionView:
        """The session stopped at a step border, and every token before it has reached the ledger; returns what is to be prepared.

        Raises:
            MoveFailedError: the move ended meanwhile, or engine and stream disagree about the tokens.
        """
        self.check()
        record, log = self._held.record, self._held.log
        moves = record.same_revision_moves + int(self._to.same_revision)
        state = replace(record.complete(view.state), same_revision_moves=moves)
        if len(state.output_token_ids) != log.next_index:
            found = f"the engine has {len(state.output_token_ids)} tokens, the stream {log.next_index}"
            raise MoveFailedError(f"engine and stream disagree: {found}")
        self.move.freeze(state)
        return replace(view, state=state)

    def prepare(self, final: SessionView, page_hashes: tuple[bytes, ...]) -> Prepare:
        """What the target must make complete and verify; its digest is over the form on the wire (`move.codec.signed`)."""
        num_kv_tokens, first_page = (final.num_kv_tokens, final.first_page) if self.paged else (0, 0)
        return Prepare(
            self.move.migration_id,
            self.generation,
            self.move.epoch,
            final.state,
            page_hashes,
            first_page,
            num_kv_tokens,
        )

    def prepared(self, prepare: Prepare, answer: PrepareAnswer) -> tuple[int, ...]:
        """The pages that must be sent again; none where the copy is complete and `commit` may follow.

        Raises:
            MoveFailedError: the move ended meanwhile, or the target verified something else.
        """
        self.check()
        if not answer.bad_pages and answer.digest != prepare.digest:
            raise MoveFailedError("the target prepared something else than what was sent")
        return answer.bad_pages

    def commit(self, now: float) -> list[Effect]:
        """Asks the gateway: from here on only its answer, a cancel or the orphan lease counts."""
        return self._ledger.transfer(self.move, now)

    def give_up(self, reason: str) -> list[Effect]:
        """The attempt failed: the session goes on here, unless the gateway was asked already."""
        out = self._ledger.abort_move(self.move, reason)
        held = self._held
        here = self._ledger.sessions.get(held.session_id) is held
        if here and not held.frozen and held.phase is HeldPhase.RUNNING:  # cancelled while the engine was freezing it
            out.append(Thaw(held.session_id))
        return out
