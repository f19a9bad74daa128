"""Who owns a session, as a pure state machine: the rules of docs/design.md (Ownership) at the gateway that holds the client.

Every input is a method, every output a message to send (`Send`) or a note for the metrics (`Note`); there is no clock: `repeat()` is the
timer. A message may be lost only with its stream, which `connected` repairs; Activate and Cancel are repeated anyway.
"""

from collections.abc import Iterable, Mapping

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import ownership_pb2 as own
from kvroll_core.epoch import Epoch
from kvroll_gateway.sessions import messages
from kvroll_gateway.sessions.copies import Copies
from kvroll_gateway.sessions.log import DeliveryLog, Entry
from kvroll_gateway.sessions.messages import Send, read_epoch
from kvroll_gateway.sessions.phases import TERMINAL, Attempt, Failure, Move, Note, Output, OwnershipPhase


class Ownership:
    """The ownership of one session: owner, epoch, tokens and old copies, with what is asked and not yet answered.

    Args:
        template: the Submit, without its epoch.
        gateway_id: this gateway's name in every epoch.
        log_capacity: unread frames that a slow client may let pile up.
        precisions: (weights, kv_cache) of each known worker instance, for the precision epochs of a replay after a move.
    """

    def __init__(
        self,
        template: inf.Submit,
        gateway_id: str,
        log_capacity: int,
        precisions: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self.session_id = template.session_id
        self.template = template
        self.log = DeliveryLog(log_capacity)
        self.phase = OwnershipPhase.SEEKING
        self.epoch = Epoch(1, gateway_id, 0)
        self.owner: str | None = None
        self.state: pb.SessionState | None = None
        self.failure: Failure | None = None
        self.excluded: set[str] = set()
        self.move: Move | None = None
        self.attempt: Attempt | None = None
        self.copies = Copies(template.session_id)
        self.num_deaths = 0  # workers that died while they held it
        self._died_mute = False  # the last of them before its first token
        self._first_index = 0  # of the tokens that the worker which has it now was asked for
        self._last_step = 0
        self._source_lost = False
        self._answers: dict[tuple[str, str], Send] = {}
        self._precisions = precisions if precisions is not None else {}

    @property
    def settled(self) -> bool:
        """True once nothing has to be sent for this session any more."""
        return self.phase in TERMINAL and self.copies.settled

    @property
    def suspect(self) -> bool:
        """True if the workers may have died of it: the last one before it gave a token, or more than one."""
        return self.num_deaths > 1 or (self.num_deaths == 1 and self._died_mute)

    @property
    def busy_instances(self) -> set[str]:
        """The worker instances that compute for this session now or may soon."""
        if self.phase in TERMINAL:
            return set()
        asked = self.attempt.instance_id if self.attempt else None
        return {instance for instance in (self.owner, asked) if instance is not None}

    def current_state(self) -> pb.SessionState:
        """The session as delivered so far: what a worker needs to go on."""
        state = pb.SessionState()
        if self.state is not None:
            state.CopyFrom(self.state)
        del state.output_token_ids[:]
        state.output_token_ids.extend(self.log.token_ids)
        state.emitted_chars = self.log.emitted_chars
        return state

    # --- a worker is found, accepts or refuses -------------------------------------------------------------------

    def placed(self, instance_id: str) -> list[Output]:
        """Asks `instance_id` to begin the session, or to go on with it; only in phase SEEKING."""
        if self.phase is not OwnershipPhase.SEEKING:
            return []
        self.attempt = Attempt(instance_id, self._mint())
        self._first_index = self.log.next_index
        self.phase = OwnershipPhase.SUBMITTED if self.state is None else OwnershipPhase.REPLAYING
        return [self._attempt_message(self.attempt)]

    def submitted(self, instance_id: str, message: inf.Submitted) -> list[Output]:
        if self.attempt != Attempt(instance_id, read_epoch(message.epoch)):
            return []
        state = pb.SessionState()
        state.CopyFrom(message.state)
        return self._took(state)

    def rejected(self, instance_id: str, message: inf.Rejected) -> list[Output]:
        if self.attempt != Attempt(instance_id, read_epoch(message.epoch)):
            return []
        self.attempt = None
        if message.code == inf.REJECT_CODE_FENCED:
            return self.give_up(Failure("fenced", message.message or "another gateway owns the session"))
        if message.code == inf.REJECT_CODE_INVALID and self.state is None:
            return self.give_up(Failure("invalid_request", message.message))
        self.excluded.add(instance_id)
        self.phase = OwnershipPhase.SEEKING
        return []

    # --- tokens --------------------------------------------------------------------------------------------------

    def frames(self, instance_id: str, frames: Iterable[pb.Frame]) -> list[Output]:
        """Takes frames in the order of their arrival; acknowledges, or asks for what is missing."""
        outputs: list[Output] = []
        duplicates = stale = 0
        gap = False
        for frame in frames:
            if self.phase not in TERMINAL:
                outputs += self._commit_by_frame(instance_id, frame)
            entry = self._offer(instance_id, frame)
            duplicates += entry is Entry.DUPLICATE
            stale += entry is Entry.STALE
            gap = gap or entry is Entry.GAP
        if duplicates:
            outputs.append(Note("duplicate", count=duplicates))
        if stale:
            outputs += [Note("stale", count=stale), *self.copies.repeat(instance_id)]
        return outputs + self._after_frames(instance_id, gap)

    def session_failed(self, instance_id: str, message: inf.SessionFailed) -> list[Output]:
        """The owner's engine gave the session up: its client gets a typed error. `not_held`: its copy is gone, another one goes on."""
        self.copies.confirm(instance_id, read_epoch(message.epoch))
        if message.code == "not_held":
            self._copy_gone(instance_id, read_epoch(message.epoch))
            return []
        if self.phase is OwnershipPhase.RUNNING and (instance_id, read_epoch(message.epoch)) == (
            self.owner,
            self.epoch,
        ):
            self.owner = None
            return self.give_up(Failure(message.code or "worker_error", message.message))
        return []

    # --- moves ---------------------------------------------------------------------------------------------------

    def transfer(self, instance_id: str, request: own.TransferOwnership) -> list[Output]:
        """The source asks to hand the session over: rule 1 decides what it is told, and when."""
        if self.move and self._answers_move(instance_id, self.move.request.migration_id, read_epoch(request.epoch)):
            # Only who took the session can hand it on: the acknowledgement was lost (rule 6).
            return [*self._commit(self.move), *self.transfer(instance_id, request)]
        if kept := self._answers.get((request.migration_id, instance_id)):
            return [kept]
        if self.phase in TERMINAL:
            return self._superseded(instance_id, request)
        if (instance_id, read_epoch(request.epoch)) != (self.owner, self.epoch):
            # An owner at another epoch, and anyone while a replay is open, hears nothing yet and asks again.
            undecided = instance_id == self.owner or self.phase not in (
                OwnershipPhase.RUNNING,
                OwnershipPhase.TRANSFERRING,
            )
            return [] if undecided else self._superseded(instance_id, request)
        if self.phase is OwnershipPhase.TRANSFERRING:
            return self._activate() if self.move and self.move.request.migration_id == request.migration_id else []
        if self.phase is not OwnershipPhase.RUNNING:
            return []
        outputs = self.frames(instance_id, request.unacknowledged)
        if self.log.next_index < request.next_index:  # rule 5: missing frames never cause a rejection
            return [*outputs, messages.resume(instance_id, self.session_id, self.epoch, self.log.next_index)]
        self.move = Move(request, instance_id, self._mint())
        self.phase = OwnershipPhase.TRANSFERRING
        return outputs + self._activate()

    def activated(self, instance_id: str, message: own.Activated) -> list[Output]:
        move = self.move
        if move is None or not self._answers_move(instance_id, message.migration_id, read_epoch(message.epoch)):
            return []
        return self._commit(move)

    def activate_refused(self, instance_id: str, message: own.ActivateRefused) -> list[Output]:
        move = self.move
        if move is None or not self._answers_move(instance_id, message.migration_id, read_epoch(message.epoch)):
            return []
        if message.HasField("highest_epoch") and read_epoch(message.highest_epoch) > move.epoch:
            return self.give_up(Failure("fenced", "a worker has promised this session to another gateway"))
        return self._resume_source(move)

    # --- streams and workers come and go -------------------------------------------------------------------------

    def connected(self, instance_id: str, held: inf.HeldSession | None) -> list[Output]:
        """A stream to `instance_id` is up (again); `held` is what that worker says it has of this session."""
        epoch = read_epoch(held.epoch) if held else None
        outputs: list[Output] = list(self.copies.repeat(instance_id))
        if self.phase in TERMINAL:
            return outputs + (self._after_frames(instance_id, gap=False) if held else [])
        if self.attempt and self.attempt.instance_id == instance_id:
            return outputs + self._reconnected_attempt(self.attempt, epoch)
        if self.phase is OwnershipPhase.TRANSFERRING and self.move and self.move.target == instance_id:
            resume = messages.resume(instance_id, self.session_id, self.move.epoch, self.log.next_index)
            return [*outputs, *self._activate(), *([resume] if epoch == self.move.epoch else [])]
        if self.owner != instance_id:
            return outputs
        if self.phase is OwnershipPhase.TRANSFERRING and held is None:
            self._source_lost = True  # its lease ran out meanwhile: a RESUME would reach nobody
            return outputs
        if (
            self.phase is OwnershipPhase.TRANSFERRING and epoch == self.epoch
        ):  # claims the frozen source, which then asks again
            return [*outputs, messages.resume(instance_id, self.session_id, self.epoch, self.log.next_index)]
        if self.phase is OwnershipPhase.RUNNING:
            return outputs + self._reconnected_owner(instance_id, epoch)
        if self.phase is OwnershipPhase.SEEKING and epoch == self.epoch and set(self.copies.kept) == {instance_id}:
            self.copies.recover(instance_id)  # it was only unreachable, and nothing else was begun
            self.num_deaths = max(0, self.num_deaths - 1)
            self.phase = OwnershipPhase.RUNNING
            return [*outputs, messages.resume(instance_id, self.session_id, self.epoch, self.log.next_index)]
        return outputs

    def lost(self, instance_id: str, *, certain: bool, died: bool = True) -> list[Output]:
        """The worker is gone for good (`certain`: its process ended), or unreachable for too long; `died`: not because it was told to."""
        outputs: list[Output] = []
        if self.attempt and self.attempt.instance_id == instance_id:
            self._note_death(died)
            self._seek(instance_id, self.attempt.epoch)
        elif self.phase is OwnershipPhase.TRANSFERRING and self.move and self.move.target == instance_id:
            outputs += self._resume_source(self.move)
        elif self.phase is OwnershipPhase.RUNNING and self.owner == instance_id:
            self._note_death(died)
            self._seek(instance_id, self.epoch)
        elif self.phase is OwnershipPhase.TRANSFERRING and self.owner == instance_id:
            self._source_lost = True  # the target may still take it
            self.copies.keep(instance_id, self.epoch)
        if certain:
            self.copies.forget(instance_id)
            if self.owner == instance_id and self.phase is not OwnershipPhase.TRANSFERRING:
                self.owner = None  # in a transfer it stays on record until the target answers
        return outputs

    def cancel(self, reason: str) -> list[Output]:
        """The client went: frees every copy (rule 8)."""
        return self._end(OwnershipPhase.CANCELLED, reason)

    def give_up(self, failure: Failure) -> list[Output]:
        """The session cannot go on: frees every copy and keeps `failure` for the client."""
        if self.phase not in TERMINAL:
            self.failure = failure
        return self._end(OwnershipPhase.FAILED, failure.code)

    def cancelled(self, instance_id: str, message: inf.Cancelled) -> list[Output]:
        self.copies.confirm(instance_id, read_epoch(message.epoch))
        return []

    def repeat(self) -> list[Output]:
        """The timer: what is repeated until it is answered."""
        return [*self.copies.repeat(), *(self._activate() if self.phase is OwnershipPhase.TRANSFERRING else [])]

    # --- inside --------------------------------------------------------------------------------------------------

    def _attempt_message(self, attempt: Attempt) -> Send:
        if self.state is None:
            return messages.submit(attempt.instance_id, self.template, attempt.epoch)
        return messages.replay(attempt.instance_id, self.current_state(), attempt.epoch)

    def _mint(self) -> Epoch:
        self._last_step += 1
        return self.epoch._replace(step=self._last_step)

    def _note_death(self, died: bool) -> None:
        """The worker that has the session is lost, and `died` for all that is known."""
        if died:
            self.num_deaths += 1
            self._died_mute = self.log.next_index == self._first_index

    def _seek(self, instance_id: str, epoch: Epoch) -> None:
        self.copies.keep(instance_id, epoch)
        self.attempt = None
        self.phase = OwnershipPhase.SEEKING
        self.excluded.add(instance_id)

    def _copy_gone(self, instance_id: str, epoch: Epoch) -> None:
        """The owner says that it holds no copy any more, because its lease ran out."""
        if (instance_id, epoch) != (self.owner, self.epoch):
            return
        if self.phase is OwnershipPhase.TRANSFERRING:
            self._source_lost = True
        elif self.phase is OwnershipPhase.RUNNING:
            self._seek(instance_id, epoch)
            self.copies.forget(instance_id)
            self.excluded.discard(instance_id)
            self.owner = None

    def _offer(self, instance_id: str, frame: pb.Frame) -> Entry:
        # While a replay is asked for, the log is what it was asked with: a token of the old owner would fork the history.
        if instance_id != self.owner or self.phase in (
            OwnershipPhase.CANCELLED,
            OwnershipPhase.FAILED,
            OwnershipPhase.REPLAYING,
        ):
            return Entry.STALE
        if self.phase is OwnershipPhase.TRANSFERRING and frame.index >= self.log.next_index:
            return Entry.STALE  # the source is frozen at next_index
        return self.log.offer(frame, self.epoch)

    def _answers_move(self, instance_id: str, migration_id: str, epoch: Epoch) -> bool:
        move = self.move
        return (
            self.phase is OwnershipPhase.TRANSFERRING
            and move is not None
            and (instance_id, migration_id, epoch) == (move.target, move.request.migration_id, move.epoch)
        )

    def _took(self, state: pb.SessionState | None) -> list[Output]:
        assert self.attempt is not None
        replayed = self.phase is OwnershipPhase.REPLAYING
        self.owner, self.epoch, self.attempt = self.attempt.instance_id, self.attempt.epoch, None
        self.phase = OwnershipPhase.RUNNING
        self.excluded.clear()
        self.state = state if state is not None else self.state
        return [*([Note("replayed")] if replayed else []), *self.copies.condemn_kept(self.owner, "replayed elsewhere")]

    def _commit_by_frame(self, instance_id: str, frame: pb.Frame) -> list[Output]:
        """The first acceptable frame of a target, or of a replay, says as much as its acknowledgement (rule 6)."""
        if frame.index != self.log.next_index:
            return []
        epoch = read_epoch(frame.epoch)
        if self.move is not None and self._answers_move(instance_id, self.move.request.migration_id, epoch):
            return self._commit(self.move)
        if self.phase is OwnershipPhase.REPLAYING and self.attempt == Attempt(instance_id, epoch):
            return self._took(None)
        return []

    def _after_frames(self, instance_id: str, gap: bool) -> list[Output]:
        if self.log.finished and self.phase is OwnershipPhase.RUNNING:
            self.phase = OwnershipPhase.FINISHED
        if instance_id != self.owner or self.phase in (OwnershipPhase.CANCELLED, OwnershipPhase.FAILED):
            return []
        outputs: list[Output] = [messages.ack(instance_id, self.session_id, self.epoch, self.log.next_index)]
        if gap:
            outputs.append(messages.resume(instance_id, self.session_id, self.epoch, self.log.next_index))
        return outputs

    def _activate(self) -> list[Output]:
        assert self.move is not None
        move = self.move
        return [messages.activate(move.target, move.request.migration_id, self.session_id, move.epoch)]

    def _commit(self, move: Move) -> list[Output]:
        kind = pb.VerdictKind.Name(move.request.kind).removeprefix("VERDICT_KIND_").capitalize()
        state = pb.SessionState()
        state.CopyFrom(move.request.state)
        if precision := self._precisions.get(move.target):
            weights, kv_cache = precision
            state.precision_epochs.add(
                from_token=move.request.next_index, weights=weights, kv_cache=kv_cache, mode=kind
            )
        self.state, self.owner, self.epoch = state, move.target, move.epoch
        outputs: list[Output] = [Note("moved", kind), *self.copies.condemn_kept(move.target, "moved elsewhere")]
        return [*outputs, *self._close_move(move, own.TRANSFER_RESULT_COMMITTED, OwnershipPhase.RUNNING)]

    def _resume_source(self, move: Move) -> list[Output]:
        """The target never took it: the source goes on above the epoch that the target might still believe in."""
        if self._source_lost:
            self.copies.keep(move.target, move.epoch)
            self.excluded.add(move.source)
            self.move, self._source_lost, self.phase = None, False, OwnershipPhase.SEEKING
            return []  # and no answer on record: a source that comes back before a replay took asks again, and its copy is needed
        self.epoch = self._mint()
        outputs = self._close_move(move, own.TRANSFER_RESULT_RESUME, OwnershipPhase.RUNNING)
        return [Note("resumed"), *outputs, *self.copies.condemn(move.target, move.epoch, "target did not take over")]

    def _close_move(self, move: Move, result: own.TransferResult.ValueType, phase: OwnershipPhase) -> list[Output]:
        resume_epoch = self.epoch if result == own.TRANSFER_RESULT_RESUME else None
        sent = messages.answer(move.source, move.request, result, resume_epoch)
        self._answers[(move.request.migration_id, move.source)] = sent
        self.move, self._source_lost, self.phase = None, False, phase
        return [sent]

    def _superseded(self, instance_id: str, request: own.TransferOwnership) -> list[Output]:
        sent = messages.answer(instance_id, request, own.TRANSFER_RESULT_SUPERSEDED)
        self._answers[(request.migration_id, instance_id)] = sent
        peer = request.target.instance_id
        if self.phase in TERMINAL and peer != self.owner:  # rule 8: a cancel goes to the peer of a move too
            return [sent, *self.copies.condemn(peer, read_epoch(request.epoch), "session ended")]
        return [sent]

    def _reconnected_owner(self, instance_id: str, epoch: Epoch | None) -> list[Output]:
        if epoch == self.epoch:
            return [messages.resume(instance_id, self.session_id, self.epoch, self.log.next_index)]
        if epoch is not None:
            resumed = [a for (_, to), a in self._answers.items() if to == instance_id]
            resumed = [a for a in resumed if read_epoch(a.message.transfer_answer.resume_epoch) == self.epoch]
            if resumed:
                return list(resumed)
        self._seek(instance_id, epoch or self.epoch)  # it no longer holds the session
        if epoch is None:
            self.copies.forget(instance_id)
            self.excluded.discard(instance_id)
            self.owner = None
        return []

    def _reconnected_attempt(self, attempt: Attempt, epoch: Epoch | None) -> list[Output]:
        """Asks again; a worker that took it answers again, and sends again what the broken stream swallowed."""
        resume = messages.resume(attempt.instance_id, self.session_id, attempt.epoch, self.log.next_index)
        return [self._attempt_message(attempt), *([resume] if epoch == attempt.epoch else [])]

    def _end(self, phase: OwnershipPhase, reason: str) -> list[Output]:
        if self.phase in TERMINAL:
            return []
        outputs: list[Output] = []
        if self.phase is OwnershipPhase.TRANSFERRING and self.move is not None:
            move = self.move
            outputs += self._close_move(move, own.TRANSFER_RESULT_SUPERSEDED, phase)
            outputs += self.copies.condemn(move.target, move.epoch, reason)
        if self.owner is not None:
            outputs += self.copies.condemn(self.owner, self.epoch, reason)
        if self.attempt is not None:
            outputs += self.copies.condemn(self.attempt.instance_id, self.attempt.epoch, reason)
        self.phase, self.attempt = phase, None
        return [*outputs, *self.copies.condemn_kept(None, reason)]
