"""What goes out on Attach streams, built from the ledger's effects and the engine's events."""

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll.v1 import ownership_pb2 as opb
from kvroll_core.epoch import Epoch
from kvroll_worker.move.codec import peer_to_wire
from kvroll_worker.move.source.attempt import SourceMove
from kvroll_worker.own import effects as fx
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.request import TokenEvent
from kvroll_worker.wire.codec import KIND_TO_WIRE, epoch_to_wire, frame_to_wire, precision_to_wire, state_to_wire

Word = fx.SendTransfer | fx.SendActivated | fx.SendActivateRefused | fx.SendCancelled


def frames_to_wire(events: tuple[TokenEvent, ...], epoch: Epoch, record: SessionRecord) -> list[pb.Frame]:
    """Frames at the epoch at which they are sent; the last one of a session carries the worker's own record of it."""
    wire = epoch_to_wire(epoch)
    frames = [_frame(event, record) for event in events]
    for frame in frames:
        frame.epoch.CopyFrom(wire)
    return frames


def _frame(event: TokenEvent, record: SessionRecord) -> pb.Frame:
    frame = frame_to_wire(event)
    if event.finish_reason is not None:
        frame.record.CopyFrom(
            pb.SessionRecord(
                prompt_tokens=record.num_prompt_tokens,
                completion_tokens=event.index + 1,
                output_digest=event.output_digest or "",
                precision_epochs=precision_to_wire(record.precision_epochs),
            )
        )
    return frame


def message_of(effect: Word) -> ipb.AttachResponse:
    """The message that carries this effect."""
    match effect:
        case fx.SendTransfer(_, move, frames, next_index, record):
            return ipb.AttachResponse(transfer_ownership=_transfer(move, frames, next_index, record))
        case fx.SendActivated(_, migration_id, session_id, epoch):
            activated = opb.Activated(migration_id=migration_id, session_id=session_id, epoch=epoch_to_wire(epoch))
            return ipb.AttachResponse(activated=activated)
        case fx.SendActivateRefused(_, migration_id, session_id, epoch, reason, highest):
            refused = opb.ActivateRefused(
                migration_id=migration_id, session_id=session_id, epoch=epoch_to_wire(epoch), reason=reason
            )
            if highest is not None:
                refused.highest_epoch.CopyFrom(epoch_to_wire(highest))
            return ipb.AttachResponse(activate_refused=refused)
        case fx.SendCancelled(_, session_id, epoch):
            return ipb.AttachResponse(cancelled=ipb.Cancelled(session_id=session_id, epoch=epoch_to_wire(epoch)))


def _transfer(
    move: SourceMove, frames: tuple[TokenEvent, ...], next_index: int, record: SessionRecord
) -> opb.TransferOwnership:
    assert move.state is not None, "asked before it was frozen"
    return opb.TransferOwnership(
        migration_id=move.migration_id,
        session_id=move.session_id,
        epoch=epoch_to_wire(move.epoch),
        target=peer_to_wire(move.target),
        kind=KIND_TO_WIRE[move.kind],
        unacknowledged=frames_to_wire(frames, move.epoch, record),
        next_index=next_index,
        state=state_to_wire(move.state),
    )
