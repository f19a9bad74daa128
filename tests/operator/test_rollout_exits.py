"""Told sequences about what ends, what counts and what holds: scaling, drains that hang, lost nodes, refusals, cancelled drains."""

from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from kvroll_core.plan import OnFailure
from kvroll_operator.api.pool import Approval
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.metrics import Metrics
from kvroll_operator.rollout.act.effects import DrainWorker
from kvroll_operator.rollout.facts.observed import Refusal, SessionPolicy
from kvroll_operator.rollout.show.phases import RolloutPhase
from kvroll_operator.rollout.transition import transition
from tests.operator.simulated_cluster import Cluster
from tests.operator.test_rollout_stories import A, B, cluster, reason, spec, until


def steps(world: Cluster, ticks: int) -> PoolStatus:
    status = PoolStatus()
    for _ in range(ticks):
        status = world.step()
    return status


def num_at(world: Cluster, content: str) -> int:
    return sum(world.revisions[s.pod.revision].content == content for s in world.pods.values() if s.pod.is_live)


# -- scaling


def test_scaling_never_widens_a_partition() -> None:
    world = cluster(replicas=4, devices=6)
    spec(world, content=B, partition=2)
    until(world, lambda s: s.rollout.phase == "PartitionReached")
    spec(world, replicas=2)
    status = steps(world, 40)
    assert (num_at(world, A), status.current_revision) == (
        2,
        next(r.short for r in world.revisions.values() if r.content == A),
    )
    spec(world, replicas=4)
    steps(world, 40)
    assert num_at(world, B) == 2


@pytest.mark.parametrize("hold", [{"approval": Approval.PLAN}, {"paused": True}])
def test_scaling_down_makes_nothing_stable_that_was_held_back(hold: dict[str, object]) -> None:
    world = cluster()
    spec(world, content=B)
    until(world, lambda s: s.rollout.groups_updated == 1)
    spec(world, **hold)
    spec(world, replicas=1)
    status = steps(world, 60)
    assert num_at(world, A) == 1
    assert world.revisions[status.current_revision].content == A
    spec(world, replicas=3)
    assert num_at(world, B) == 0 or steps(world, 30).rollout.phase != "Complete"


def test_a_pool_without_workers_is_complete_and_asks_for_nothing() -> None:
    world = cluster(replicas=0, settled=False)
    status = until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated", ticks=5)
    assert (status.ready, reason(status, "Progressing")) == ("0/0", "Converged")
    assert transition(world.desired, world.observe())[1] == ()
    spec(world, replicas=2)
    until(world, lambda s: s.ready == "2/2" and reason(s, "RolloutComplete") == "AllGroupsUpdated")


def test_without_a_device_a_group_that_may_be_out_of_service_makes_room() -> None:
    world = cluster(devices=3, max_surge=1, max_unavailable=1)
    spec(world, content=B)
    status = until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    assert status.rollout.sessions.lost == 0


# -- what a drain's end says


def losing(world: Cluster) -> None:
    """The workers drop what they drain."""
    for sim in world.pods.values():
        process = sim.process
        if process is not None and process.drain_id and process.sessions:
            process.tally = replace(process.tally, lost=process.tally.lost + process.sessions)
            process.sessions = 0


@pytest.mark.parametrize("why", ["Scale", "Request"])
def test_sessions_lost_outside_of_a_rollout_are_counted_and_shown(why: str) -> None:
    world = cluster(devices=5)
    steps(world, 8)
    if why == "Scale":
        spec(world, replicas=1)
    else:
        spec(world, request=f"drain@{next(iter(world.pods.values())).pod.uid}")
    most = 0
    for _ in range(30):
        losing(world)
        status = world.step()
        most = max(most, status.sessions.lost)
        assert status.sessions.lost == most, "a number of lost sessions never goes back"
    assert most > 0
    assert (reason(status, "SessionsAtRisk"), status.rollout.sessions.lost) == ("SessionsLost", 0)


def test_lost_sessions_stay_counted_when_their_drains_are_forgotten() -> None:
    world = cluster(replicas=4, devices=8)
    for replicas in (1, 4) * 5:
        spec(world, replicas=replicas)
        for _ in range(25):
            losing(world)
            status = world.step()
    kept = sum(d.tally.lost for d in world.drains.values())
    assert status.sessions.lost > kept
    before = status.sessions.lost
    spec(world, content=B)
    status = until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    assert status.sessions.lost == before, "another plan's record carries the sum on"


def test_deleting_a_drain_cancels_it_and_keeps_its_journal() -> None:
    world = cluster(devices=5)
    uid = next(iter(world.pods.values())).pod.uid
    steps(world, 8)
    spec(world, request=f"drain@{uid}")
    until(world, lambda s: bool(world.drains) and any(d.tally.held for d in world.drains.values()))
    (drain,) = world.drains.values()
    world.drains[drain.name] = replace(drain, tally=replace(drain.tally, lost=3))
    world.delete_drain(drain.name)
    steps(world, 5)
    assert uid not in {d.pod_uid for d in world.drains.values()}
    sim = next(s for s in world.pods.values() if s.pod.uid == uid)
    assert sim.pod.admitted is True, "it takes sessions again"
    assert sim.process is not None
    assert (sim.process.admitting, sim.process.drain_id) == (True, "")
    status = steps(world, 10)
    assert uid not in {d.pod_uid for d in world.drains.values()}, "the request, still on the pool, was cancelled"
    assert status.sessions.lost == 3


def test_a_cancelled_drain_of_a_rollout_holds_its_group_until_the_plan_fails_or_the_spec_changes() -> None:
    world = cluster()
    spec(world, content=B)
    until(world, lambda s: bool(world.drains))
    (drain,) = world.drains.values()
    world.delete_drain(drain.name)
    status = until(world, lambda s: s.blocked == "DrainCancelled", ticks=6)
    assert reason(status, "Stalled") == "DrainCancelled"
    status = steps(world, 3)
    assert not world.drains
    spec(world, content=B)
    until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")


# -- exits


@pytest.mark.parametrize("trouble", ["silent", "hung", "lost"])
@pytest.mark.parametrize("drops", [False, True])
def test_a_deleted_pool_is_released_whatever_its_workers_do(trouble: str, drops: bool) -> None:
    policy = SessionPolicy(deadline_seconds=900, drops_late=drops)
    world = cluster(policy=policy)
    steps(world, 8)
    name = next(iter(world.pods))
    if trouble == "silent":
        world.silence(name, 10_000)
    elif trouble == "hung":
        for other in world.pods:
            world.hang(other, 10_000)
    else:
        world.lose_node(name)
    spec(world, deleting=True)
    shown = set()
    for _ in range(120):
        shown.add(reason(world.step(), "Stalled"))
        if world.released:
            break
    assert world.released
    assert trouble == "lost" or "DrainStalled" in shown


def test_a_late_drain_holds_and_says_so_or_drops_and_counts() -> None:
    for drops in (False, True):
        world = cluster(policy=SessionPolicy(deadline_seconds=900, drops_late=drops), devices=6)
        steps(world, 8)
        for name in world.pods:
            world.hang(name, 10_000)
        spec(world, replicas=2)
        status = steps(world, 60)
        if drops:
            assert (len(world.pods), reason(status, "SessionsAtRisk")) == (2, "SessionsLost")
            assert status.sessions.lost > 0
        else:
            assert (len(world.pods), status.sessions.lost) == (3, 0)
            assert reason(status, "Stalled") == "DrainStalled"


def test_after_a_rollback_the_status_says_that_the_spec_is_not_served() -> None:
    world = cluster(on_failure=OnFailure.ROLLBACK, broken=(B,))
    spec(world, content=B)
    status = until(world, lambda s: s.rollout.phase == "RolledBack" and len(world.pods) == 3)
    assert reason(status, "RolloutComplete") == "RolledBack"
    progressing = next(c for c in status.conditions if c.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("False", "RolledBack")


def test_a_refused_pod_is_shown_and_no_further_group_enters() -> None:
    world = cluster()
    spec(world, content=B)
    world.step(passes=1)
    seen = world.observe()
    refused = replace(seen, refusals=(Refusal("Pod p", "QuotaExceeded", "exceeded quota: gpus", B),))
    status, effects = transition(world.desired, refused)
    for _ in range(3):
        for effect in effects:
            world.apply(effect)
        refused = replace(world.observe(), refusals=refused.refusals)
        status, effects = transition(world.desired, refused)
    assert not any(r.record.turn for r in world.revisions.values())
    assert (status.blocked, reason(status, "CapacityFeasible")) == ("CreateRefused", "QuotaExceeded")
    assert (reason(status, "Degraded"), reason(status, "Stalled")) == ("CreateRefused", "CreateRefused")
    assert [b.reason for b in status.plan.blockers] == ["CreateRefused"]
    assert "exceeded quota" in status.plan.blockers[0].message


# -- evidence, limits, time


@pytest.mark.parametrize("silent", [False, True])
def test_a_closed_worker_whose_label_was_stripped_is_drained_all_the_same(silent: bool) -> None:
    world = cluster(devices=6)
    steps(world, 8)
    for name in world.pods:
        world.hang(name, 20)
    spec(world, replicas=1)
    until(world, lambda s: bool(world.drains))
    for name in [d.pod_name for d in world.drains.values()]:
        world.strip(name)
        if silent:
            world.silence(name, 15)
    # That no Pod is deleted with sessions is an invariant of the simulated cluster.
    until(world, lambda s: len(world.pods) == 1)


def test_min_ready_counts_from_the_moment_a_worker_is_let_in() -> None:
    world = cluster(min_ready_seconds=300)
    steps(world, 12)
    spec(world, content=B)
    until(world, lambda s: num_at(world, B) == 1)
    new = next(s for s in world.pods.values() if world.revisions[s.pod.revision].content == B)
    until(world, lambda s: new.pod.ready_since is not None)
    # It was loaded long ago, and is let in only now, as behind a slow gate.
    new.pod = replace(new.pod, ready_since=world.now - 10_000)
    until(world, lambda s: new.pod.admitted is True)
    let_in = new.pod.admitted_at
    assert let_in is not None
    until(world, lambda s: any(x.pod.is_closed for x in world.pods.values()))
    assert world.now - let_in >= 300


@pytest.mark.parametrize("parallel", [1, 3, 5])
def test_moves_at_a_time_are_the_pools_however_many_workers_drain(parallel: int) -> None:
    policy = SessionPolicy(parallel=parallel, per_worker=2)
    world = cluster(replicas=6, devices=12, group_size=2, max_surge=3, policy=policy, progress_deadline_seconds=9000)
    steps(world, 8)
    for name in world.pods:
        world.hang(name, 40)
    spec(world, content=B)
    most = 0

    def done(status: PoolStatus) -> bool:
        nonlocal most
        handed = [e.parallel for e in transition(world.desired, world.observe())[1] if isinstance(e, DrainWorker)]
        most = max(most, sum(handed))
        return reason(status, "RolloutComplete") == "AllGroupsUpdated"

    until(world, done, ticks=400)
    assert 0 < most <= parallel


def test_every_phase_of_a_rollout_is_a_series_of_the_metric() -> None:
    metrics = Metrics()
    metrics.show("p", PoolStatus())
    page = generate_latest(metrics.registry).decode()
    assert all(f'kvroll_rollout_phase{{phase="{phase}",pool="p"}}' in page for phase in RolloutPhase if phase)
