"""Told sequences: a whole roll, and the shortest sequences of the traps that the spike wrote down."""

from dataclasses import replace

import pytest

from kvroll_core.plan import OnFailure, PlanReason
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.rollout.decide import writes
from kvroll_operator.rollout.facts.desired import Desired
from kvroll_operator.rollout.facts.observed import Observed
from kvroll_operator.rollout.transition import transition
from tests.operator.simulated_cluster import Cluster

A, B, C = ('{"r":"a"}', '{"r":"b"}', '{"r":"c"}')


def cluster(
    *, replicas: int = 3, devices: int = 4, broken: tuple[str, ...] = (), settled: bool = True, **knobs: object
) -> Cluster:
    desired = replace(Desired("p", "u", A, replicas=replicas, progress_deadline_seconds=600), **knobs)  # type: ignore[arg-type]
    made = Cluster(desired, devices=devices, seed=1, broken=broken)
    if settled:
        until(made, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    return made


def reason(status: PoolStatus, kind: str) -> str:
    return next(c.reason for c in status.conditions if c.type == kind)


def until(world: Cluster, holds: object, ticks: int = 150) -> PoolStatus:
    for _ in range(ticks):
        status = world.step()
        if callable(holds) and holds(status):
            return status
    raise AssertionError(f"not in {ticks} ticks: {status.model_dump_json(exclude={'conditions'})}")


def spec(world: Cluster, **changes: object) -> None:
    world.desired = replace(world.desired, generation=world.desired.generation + 1, **changes)  # type: ignore[arg-type]


def test_a_precision_change_goes_group_by_group_and_keeps_the_sessions() -> None:
    world = cluster()
    spec(world, content=B)
    phases: dict[int, list[str]] = {}
    most = 0

    def done(status: PoolStatus) -> bool:
        nonlocal most
        most = max(most, len(world.pods))
        for group in status.groups:
            seen = phases.setdefault(group.id, [])
            if not seen or seen[-1] != group.phase:
                seen.append(group.phase)
        return reason(status, "RolloutComplete") == "AllGroupsUpdated"

    status = until(world, done)
    assert most == 4, "one surge worker at a time"
    assert all(seen[:4] == ["Stable", "Surging", "Warming", "Draining"] for seen in phases.values()), phases
    assert status.rollout.phase == "Complete"
    assert status.rollout.group == "3/3"
    assert status.rollout.finished_at is not None
    assert status.rollout.sessions.lost == 0
    assert status.rollout.sessions.held == status.rollout.sessions.moved > 0


def test_complete_is_false_from_the_first_look_at_a_new_spec() -> None:
    world = cluster()
    spec(world, content=B)
    status, _ = transition(world.desired, world.observe())
    assert (reason(status, "RolloutComplete"), status.observed_generation) == ("NotStarted", world.desired.generation)


def test_scaling_shows_the_rollout_incomplete_until_all_serve() -> None:
    world = cluster()
    spec(world, replicas=4)
    status, _ = transition(world.desired, world.observe())
    assert reason(status, "RolloutComplete") == "WorkersMissing"
    until(world, lambda s: s.ready == "4/4" and reason(s, "RolloutComplete") == "AllGroupsUpdated")


def test_a_revert_in_mid_roll_opens_the_closed_worker_again() -> None:
    world = cluster()
    spec(world, content=B)
    until(world, lambda s: any(g.phase == "Draining" for g in s.groups))
    until(world, lambda s: bool(world.drains))
    before = {name for name in world.pods if world.pods[name].pod.is_closed}
    spec(world, content=A)
    status = until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    assert status.rollout.reason == PlanReason.REVERT
    assert before <= set(world.pods), "the drain was cancelled, the worker kept"


def test_a_revision_that_never_serves_fails_without_closing_anything() -> None:
    world = cluster(broken=(B,))
    serving = set(world.pods)
    spec(world, content=B)
    status = until(world, lambda s: s.rollout.phase == "Failed")
    assert reason(status, "Stalled") == "ProgressDeadlineExceeded"
    status = until(world, lambda s: set(world.pods) == serving)
    assert (status.ready, reason(status, "Degraded")) == ("3/3", "FailedRevisionPinned")
    assert not world.drains


def test_on_failure_rollback_takes_finished_groups_back() -> None:
    world = cluster(on_failure=OnFailure.ROLLBACK)
    spec(world, content=B)
    until(world, lambda s: s.rollout.groups_updated == 1)
    world.broken.add(B)
    status = until(world, lambda s: s.rollout.reason == PlanReason.ROLLBACK and s.rollout.phase == "RolledBack")
    assert (status.ready, status.updated, status.failed_revisions) == ("3/3", "0/3", [status.update_revision])
    assert status.update_revision != status.current_revision


def test_a_rollout_that_holds_where_it_was_aborted_is_taken_back_on_request() -> None:
    world = cluster()
    spec(world, content=B)
    rolling = until(world, lambda s: s.rollout.groups_updated == 1)
    spec(world, request=f"abort@{rolling.rollout.id}")
    held = until(world, lambda s: s.rollout.phase == "Failed" and len(world.pods) == 3)
    assert held.updated == "1/3"
    spec(world, request=f"rollback@{held.rollout.id}")
    status = until(world, lambda s: s.rollout.reason == PlanReason.ROLLBACK and s.rollout.phase == "RolledBack")
    assert (status.ready, status.updated, status.failed_revisions) == ("3/3", "0/3", [status.update_revision])
    assert status.rollout.sessions.lost == 0


def test_a_rollout_that_failed_before_its_first_group_is_let_go_by_a_rollback() -> None:
    world = cluster(broken=(B,))
    spec(world, content=B)
    failed = until(world, lambda s: s.rollout.phase == "Failed")
    spec(world, request=f"rollback@{failed.rollout.id}")
    status = until(world, lambda s: s.rollout.phase == "RolledBack")
    assert (status.rollout.reason, status.ready, reason(status, "Degraded")) == (
        PlanReason.ROLLBACK,
        "3/3",
        "FailedRevisionPinned",
    )
    assert not world.drains


def test_a_retry_makes_a_new_plan() -> None:
    world = cluster(broken=(B,))
    spec(world, content=B)
    failed = until(world, lambda s: s.rollout.phase == "Failed")
    world.broken.clear()
    spec(world, request=f"retry@{failed.rollout.id}")
    status = until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    assert status.rollout.id != failed.rollout.id


def test_a_third_revision_waits_for_the_group_in_turn() -> None:
    world = cluster()
    spec(world, content=B)
    until(world, lambda s: bool(world.drains))
    spec(world, content=C)
    until(world, lambda s: s.rollout.phase == "Queued", ticks=2)
    status = until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    assert {sim.pod.revision for sim in world.pods.values()} == {status.update_revision}


def test_no_device_closes_nothing_and_stops_the_clock() -> None:
    world = cluster(devices=3)
    spec(world, content=B)
    status = until(world, lambda s: reason(s, "CapacityFeasible") == "NoSurgeDevice")
    for _ in range(60):
        status = world.step()
    assert (status.ready, status.blocked, status.rollout.phase) == ("3/3", "NoSurgeDevice", "Rolling")
    world.devices = 4
    until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")


def test_a_pause_holds_the_first_close() -> None:
    world = cluster()
    spec(world, content=B)
    until(world, lambda s: any(g.phase == "Warming" for g in s.groups))
    spec(world, paused=True)
    for _ in range(10):
        status = world.step()
    assert (status.ready, reason(status, "RolloutComplete"), world.drains) == ("4/3", "Paused", {})
    spec(world, paused=False)
    until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")


def test_partition_leaves_groups_on_the_old_revision() -> None:
    world = cluster()
    spec(world, content=B, partition=2)
    status = until(world, lambda s: s.rollout.phase == "PartitionReached")
    assert (status.updated, reason(status, "RolloutComplete")) == ("1/3", "PartitionReached")


def test_maxsurge_zero_drains_first() -> None:
    world = cluster(devices=3, max_surge=0, max_unavailable=1)
    spec(world, content=B)
    most, fewest = 0, len(world.pods)

    def complete(status: PoolStatus) -> bool:
        nonlocal most, fewest
        most, fewest = max(most, len(world.pods)), min(fewest, len(world.pods))
        return reason(status, "RolloutComplete") == "AllGroupsUpdated"

    until(world, complete)
    assert (most, fewest) == (3, 2), "a group's new worker comes after its old one is gone"


def test_a_worker_that_died_comes_back_at_the_revision_of_its_group() -> None:
    world = cluster()
    spec(world, content=B, paused=True)
    old = sorted(world.pods)[0]
    world.kill(old)
    until(world, lambda s: old not in world.pods and s.ready == "3/3")
    assert len({sim.pod.revision for sim in world.pods.values()}) == 1


def test_deleting_the_pool_drains_and_releases_it() -> None:
    world = cluster()
    spec(world, deleting=True)
    until(world, lambda s: world.released)
    assert not world.pods


def test_scale_down_goes_through_drain_and_seal() -> None:
    world = cluster()
    spec(world, replicas=1)
    until(world, lambda s: s.ready == "1/1" and len(world.pods) == 1)
    assert {d.reason for d in world.drains.values()} == {"Scale"}
    assert all(d.receipt for d in world.drains.values())


def test_annotations_lost_roll_nothing_away() -> None:
    world = cluster()
    before = set(world.pods)
    for short, revision in world.revisions.items():
        world.revisions[short] = replace(revision, record=type(revision.record)())
    until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    assert set(world.pods) == before


def test_nothing_is_done_to_a_settled_pool() -> None:
    world = cluster()
    assert transition(world.desired, world.observe())[1] == ()


@pytest.mark.parametrize("silent", [True, False])
def test_unknown_is_neither_idle_nor_gone(silent: bool) -> None:
    world = cluster()
    spec(world, content=B)
    until(world, lambda s: bool(world.drains))
    (drained,) = (d.pod_name for d in world.drains.values())
    if silent:
        world.silence(drained, 100)
    for _ in range(12):
        world.step()
    assert (drained in world.pods) is silent


def test_an_effect_is_asked_for_again_until_it_is_seen() -> None:
    world = cluster()
    spec(world, content=B)
    _, first = transition(world.desired, world.observe())
    again = transition(world.desired, Observed(world.now, world.observe().pods, tuple(world.revisions.values())))[1]
    assert isinstance(first[0], writes.CreateRevision)
    assert first == again


def test_slow_probes_do_not_make_a_worker_with_sessions_broken() -> None:
    """Seen on an overloaded machine: every worker was not Ready for two minutes, and all groups were drained at once."""
    world = cluster()
    for name in list(world.pods):
        world.unready(name, 20)
    spec(world, content=B)
    for _ in range(15):
        world.step()
    assert len({d.group for d in world.drains.values()}) <= 1, "the group in turn, at most"
    until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")


def test_no_close_while_another_worker_is_silent() -> None:
    """dynamo#13353: the floor counts who serves over all revisions, not the updates that were begun."""
    world = cluster()
    spec(world, content=B)
    until(world, lambda s: any(g.phase == "Warming" for g in s.groups))
    spec(world, paused=True)
    until(world, lambda s: s.ready == "4/3")
    other = next(name for name, sim in world.pods.items() if sim.pod.group == 2)
    world.silence(other, 5)
    spec(world, paused=False)
    for _ in range(4):
        assert world.step().ready == "3/3"
    assert not any(sim.pod.is_closed for sim in world.pods.values())
    until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
