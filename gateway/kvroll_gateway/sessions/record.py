"""What is on record at its gateway about one session; `ownership` decides what happens to it."""

from collections.abc import Mapping

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll_core.epoch import Epoch
from kvroll_gateway.sessions import messages
from kvroll_gateway.sessions.copies import Copies
from kvroll_gateway.sessions.log import Entry, FrameLog
from kvroll_gateway.sessions.messages import Send
from kvroll_gateway.sessions.phases import TERMINAL, Attempt, Failure, Move, Phase


class Record:
    """Owner, epoch, tokens and old copies of one session, with what is asked and not yet answered.

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
        self.log = FrameLog(log_capacity)
        self.phase = Phase.SEEKING
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

    def _attempt_message(self, attempt: Attempt) -> Send:
        if self.state is None:
            return messages.submit(attempt.instance_id, self.template, attempt.epoch)
        return messages.replay(attempt.instance_id, self.current_state(), attempt.epoch)

    def current_state(self) -> pb.SessionState:
        """The session as delivered so far: what a worker needs to go on."""
        state = pb.SessionState()
        if self.state is not None:
            state.CopyFrom(self.state)
        del state.output_token_ids[:]
        state.output_token_ids.extend(self.log.token_ids)
        state.emitted_chars = self.log.emitted_chars
        return state

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
        self.phase = Phase.SEEKING
        self.excluded.add(instance_id)

    def _copy_gone(self, instance_id: str, epoch: Epoch) -> None:
        """The owner says that it holds no copy any more, because its lease ran out."""
        if (instance_id, epoch) != (self.owner, self.epoch):
            return
        if self.phase is Phase.TRANSFERRING:
            self._source_lost = True
        elif self.phase is Phase.RUNNING:
            self._seek(instance_id, epoch)
            self.copies.forget(instance_id)
            self.excluded.discard(instance_id)
            self.owner = None

    def _offer(self, instance_id: str, frame: pb.Frame) -> Entry:
        # While a replay is asked for, the log is what it was asked with: a token of the old owner would fork the history.
        if instance_id != self.owner or self.phase in (Phase.CANCELLED, Phase.FAILED, Phase.REPLAYING):
            return Entry.STALE
        if self.phase is Phase.TRANSFERRING and frame.index >= self.log.next_index:
            return Entry.STALE  # the source is frozen at next_index
        return self.log.offer(frame, self.epoch)

    def _answers_move(self, instance_id: str, migration_id: str, epoch: Epoch) -> bool:
        move = self.move
        return (
            self.phase is Phase.TRANSFERRING
            and move is not None
            and (instance_id, migration_id, epoch) == (move.target, move.request.migration_id, move.epoch)
        )
