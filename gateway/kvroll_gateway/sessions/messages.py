"""Builders of the Attach messages that a gateway sends, and the epoch's way over the wire."""

from dataclasses import dataclass

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import ownership_pb2 as own
from kvroll_core.epoch import Epoch


@dataclass(frozen=True)
class Send:
    """A message for one worker instance; lost if that instance is not connected, so its sender must be ready to repeat it."""

    instance_id: str
    message: inf.AttachRequest


def read_epoch(epoch: pb.Epoch) -> Epoch:
    return Epoch(epoch.reign, epoch.gateway_id, epoch.step)


def write_epoch(epoch: Epoch) -> pb.Epoch:
    return pb.Epoch(reign=epoch.reign, gateway_id=epoch.gateway_id, step=epoch.step)


def submit(instance_id: str, template: inf.Submit, epoch: Epoch) -> Send:
    message = inf.AttachRequest(submit=template)
    message.submit.epoch.CopyFrom(write_epoch(epoch))
    return Send(instance_id, message)


def replay(instance_id: str, state: pb.SessionState, epoch: Epoch) -> Send:
    return Send(instance_id, inf.AttachRequest(replay=inf.Replay(epoch=write_epoch(epoch), state=state)))


def ack(instance_id: str, session_id: str, epoch: Epoch, next_index: int) -> Send:
    body = inf.Ack(session_id=session_id, epoch=write_epoch(epoch), next_index=next_index)
    return Send(instance_id, inf.AttachRequest(ack=body))


def resume(instance_id: str, session_id: str, epoch: Epoch, next_index: int) -> Send:
    body = inf.Resume(session_id=session_id, epoch=write_epoch(epoch), next_index=next_index)
    return Send(instance_id, inf.AttachRequest(resume=body))


def cancel(instance_id: str, session_id: str, epoch: Epoch, reason: str) -> Send:
    body = inf.Cancel(session_id=session_id, epoch=write_epoch(epoch), reason=reason)
    return Send(instance_id, inf.AttachRequest(cancel=body))


def activate(instance_id: str, migration_id: str, session_id: str, epoch: Epoch) -> Send:
    body = own.Activate(migration_id=migration_id, session_id=session_id, epoch=write_epoch(epoch))
    return Send(instance_id, inf.AttachRequest(activate=body))


def answer(
    instance_id: str,
    request: own.TransferOwnership,
    result: own.TransferResult.ValueType,
    resume_epoch: Epoch | None = None,
) -> Send:
    """The answer to `request`; `resume_epoch` only with RESUME."""
    body = own.TransferAnswer(
        migration_id=request.migration_id, session_id=request.session_id, epoch=request.epoch, result=result
    )
    if resume_epoch is not None:
        body.resume_epoch.CopyFrom(write_epoch(resume_epoch))
    return Send(instance_id, inf.AttachRequest(transfer_answer=body))
