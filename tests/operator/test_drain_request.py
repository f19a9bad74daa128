"""`kvroll drain`: a worker that a user asked to leave goes, its successor comes first, and no session is lost."""

from kvroll_operator.api.status import PoolStatus
from kvroll_operator.rollout.transition import transition
from tests.operator.simulated_cluster import Cluster
from tests.operator.test_rollout_stories import B, cluster, reason, spec, until


def status_of(world: Cluster) -> PoolStatus:
    return transition(world.desired, world.observe())[0]


def test_a_worker_that_is_asked_to_leave_is_replaced_first_and_loses_no_session() -> None:
    world = cluster()
    name = next(n for n, sim in sorted(world.pods.items()) if sim.pod.group == 1)
    uid = world.pods[name].pod.uid
    spec(world, request=f"drain@{uid}")
    least = 3

    def replaced(status: PoolStatus) -> bool:
        nonlocal least
        least = min(least, status.admitted_replicas)
        return (
            uid not in {sim.pod.uid for sim in world.pods.values()}
            and reason(status, "RolloutComplete") != "WorkersMissing"
        )

    before = status_of(world)
    status = until(world, replaced)
    assert (least, status.ready, len(world.pods)) == (3, "3/3", 3)
    (drain,) = world.drains.values()
    assert (drain.pod_uid, drain.reason, drain.rollout, drain.phase) == (uid, "Request", "", "Sealed")
    # It is no rollout: the one before stays as it was, and its figures too.
    assert status.rollout == before.rollout
    assert {sim.pod.revision for sim in world.pods.values()} == {status.current_revision}
    for _ in range(5):
        world.step()
    assert len(world.drains) == 1, "the same request, still on the pool, is about a Pod that is gone"


def test_without_a_device_for_its_successor_a_worker_that_is_asked_to_leave_stays() -> None:
    world = cluster(devices=3)
    uid = next(iter(world.pods.values())).pod.uid
    spec(world, request=f"drain@{uid}")
    status = until(world, lambda s: reason(s, "CapacityFeasible") == "NoDevice")
    assert (status.ready, uid in {sim.pod.uid for sim in world.pods.values()}, world.drains) == ("3/3", True, {})


def test_a_request_to_leave_outlives_a_rollout_and_another_request() -> None:
    world = cluster(devices=4)
    spec(world, content=B)
    until(world, lambda s: s.rollout.groups_updated == 1)
    fresh = next(sim.pod for sim in world.pods.values() if sim.pod.revision == status_of(world).update_revision)
    spec(world, request=f"drain@{fresh.uid}")
    world.step()
    spec(world, request="")
    status = until(
        world,
        lambda s: (
            fresh.uid not in {sim.pod.uid for sim in world.pods.values()}
            and reason(s, "RolloutComplete") == "AllGroupsUpdated"
        ),
    )
    assert (status.ready, status.updated) == ("3/3", "3/3")
