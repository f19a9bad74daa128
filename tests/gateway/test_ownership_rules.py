"""The rules of docs/design.md §7 one by one, where the model test would need luck to meet them."""

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import ownership_pb2 as own
from kvroll_gateway.sessions.messages import Send, write_epoch
from kvroll_gateway.sessions.ownership import Ownership
from kvroll_gateway.sessions.phases import Output, OwnershipPhase


def running() -> Ownership:
    """A session that runs on worker S."""
    machine = Ownership(inf.Submit(session_id="s", model="m"), "g", 100)
    (sent,) = machine.placed("S")
    assert isinstance(sent, Send)
    state = pb.SessionState(session_id="s", prompt_token_ids=[1])
    machine.submitted("S", inf.Submitted(session_id="s", epoch=sent.message.submit.epoch, state=state))
    return machine


def frame(machine: Ownership, index: int) -> pb.Frame:
    return pb.Frame(session_id="s", epoch=write_epoch(machine.epoch), index=index, token_id=index)


def request(machine: Ownership, *frames: pb.Frame, next_index: int) -> own.TransferOwnership:
    target = pb.WorkerRef(instance_id="T")
    asked = own.TransferOwnership(migration_id="x", session_id="s", target=target, kind=pb.VERDICT_KIND_EXACT)
    asked.epoch.CopyFrom(write_epoch(machine.epoch))
    asked.next_index = next_index
    asked.unacknowledged.extend(frames)
    return asked


def kinds(outputs: list[Output]) -> list[tuple[str, str]]:
    return [(one.instance_id, str(one.message.WhichOneof("message"))) for one in outputs if isinstance(one, Send)]


def test_missing_frames_ask_for_more_and_never_decide() -> None:
    machine = running()
    assert kinds(machine.transfer("S", request(machine, next_index=2)))[-1] == ("S", "resume")
    assert machine.phase is OwnershipPhase.RUNNING
    whole = request(machine, frame(machine, 0), frame(machine, 1), next_index=2)
    assert kinds(machine.transfer("S", whole))[-1] == ("T", "activate")
    assert [one.index for one in machine.log.take()] == [0, 1]


def test_a_repeated_request_gets_the_same_answer() -> None:
    machine = running()
    asked = request(machine, next_index=0)
    (activate,) = [one for one in machine.transfer("S", asked) if isinstance(one, Send) and one.instance_id == "T"]
    assert kinds(machine.transfer("S", asked)) == [("T", "activate")]  # no answer before the commit point
    outputs = machine.activated(
        "T", own.Activated(migration_id="x", session_id="s", epoch=activate.message.activate.epoch)
    )
    assert kinds(outputs) == [("S", "transfer_answer")]
    assert kinds(machine.transfer("S", asked)) == [("S", "transfer_answer")]
    assert machine.owner == "T"


def test_a_cancel_goes_to_the_owner_and_the_peer_of_a_move() -> None:
    machine = running()
    machine.transfer("S", request(machine, next_index=0))
    sent = kinds(machine.cancel("gone"))
    assert {("S", "cancel"), ("T", "cancel"), ("S", "transfer_answer")} == set(sent)
    assert {("S", "cancel"), ("T", "cancel")} == set(kinds(machine.repeat()))  # until both confirm


def test_an_old_copy_is_cancelled_only_after_its_replay_took() -> None:
    machine = running()
    old = machine.epoch
    assert kinds(machine.lost("S", certain=False)) == []
    (replay,) = machine.placed("R")
    assert isinstance(replay, Send)
    assert kinds(machine.repeat()) == []
    epoch = replay.message.replay.epoch
    outputs = machine.submitted("R", inf.Submitted(session_id="s", epoch=epoch, state=replay.message.replay.state))
    (cancel,) = [one for one in outputs if isinstance(one, Send)]
    assert (cancel.instance_id, cancel.message.cancel.epoch) == ("S", write_epoch(old))


def test_a_source_that_was_only_unreachable_while_its_target_died_is_not_told_to_drop_its_copy() -> None:
    """Found by the model test: SUPERSEDED stayed on record, the frozen source heard it on return, and nobody held the session."""
    machine = running()
    asked = request(machine, next_index=0)
    machine.transfer("S", asked)
    machine.lost("S", certain=False)
    machine.lost("T", certain=True)
    assert str(machine.phase) == str(OwnershipPhase.SEEKING)
    assert kinds(machine.transfer("S", asked)) == []
    held = inf.HeldSession(session_id="s", epoch=write_epoch(machine.epoch))
    assert kinds(machine.connected("S", held)) == [("S", "resume")]
    assert kinds(machine.transfer("S", asked))[-1] == ("T", "activate")
    (answer,) = [one for one in machine.lost("T", certain=True) if isinstance(one, Send) and one.instance_id == "S"]
    assert answer.message.transfer_answer.result == own.TRANSFER_RESULT_RESUME
    assert machine.phase is OwnershipPhase.RUNNING


def test_a_target_that_hands_the_session_on_has_taken_it() -> None:
    """Found by the model test: its Activated was lost, so it was told SUPERSEDED, dropped its copy, and nobody held the session."""
    machine = running()
    (activate,) = [o for o in machine.transfer("S", request(machine, next_index=0)) if kinds([o])[0][0] == "T"]
    assert isinstance(activate, Send)
    machine.lost("S", certain=True)
    onward = own.TransferOwnership(migration_id="y", session_id="s", target=pb.WorkerRef(instance_id="U"))
    onward.epoch.CopyFrom(activate.message.activate.epoch)
    assert kinds(machine.transfer("T", onward))[-1] == ("U", "activate")
    assert machine.owner == "T"
