"""Which operator a worker obeys."""

from kvroll.v1 import worker_pb2 as pb
from kvroll_worker.serve.control import OperatorFence


def epoch(lease_uid: str, transitions: int) -> pb.OperatorEpoch:
    return pb.OperatorEpoch(lease_uid=lease_uid, transitions=transitions)


def test_a_late_caller_without_a_lease_does_not_end_the_leaseholder() -> None:
    fence = OperatorFence()
    assert fence.refusal(epoch("lease", 3)) is None
    assert "without a Lease" in (fence.refusal(epoch("", 1_800_000_000_000)) or "")
    assert fence.refusal(epoch("lease", 3)) is None
    assert "another operator took over" in (fence.refusal(epoch("lease", 2)) or "")


def test_a_lease_takes_over_from_a_clock_and_from_an_older_lease() -> None:
    fence = OperatorFence()
    assert fence.refusal(epoch("", 1_800_000_000_000)) is None
    assert fence.refusal(epoch("first", 1)) is None
    assert fence.refusal(epoch("second", 1)) is None
    assert "was followed by" in (fence.refusal(epoch("first", 9)) or "")
