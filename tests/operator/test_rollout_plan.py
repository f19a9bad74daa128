"""status.plan and `approval: Plan`, on the simulated cluster."""

import pytest

from kvroll_operator.api.plan import PlannedWay, PlanStatus
from kvroll_operator.api.pool import Approval
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.rollout.facts.desired import GateRule
from kvroll_operator.rollout.transition import transition
from tests.operator.simulated_cluster import Cluster
from tests.operator.simulated_facts import TOKENS, content
from tests.operator.test_rollout_stories import cluster, reason, spec, until

OLD, KV, WEIGHTS = content(), content(kv_cache="int8"), content(weights="int8")


def pool(approval: Approval = Approval.PLAN) -> Cluster:
    return cluster(content=OLD, approval=approval, devices=5)


def waiting(world: Cluster) -> PoolStatus:
    return until(world, lambda s: s.rollout.phase == "AwaitingApproval", ticks=3)


def look(world: Cluster) -> PoolStatus:
    return transition(world.desired, world.observe())[0]


def ways(plan: PlanStatus) -> dict[str, PlannedWay]:
    assert plan.cost is not None
    return {w.way: w for w in plan.cost.ways}


def test_the_first_rollout_of_a_pool_is_neither_priced_nor_approved() -> None:
    world = pool()
    status = look(world)
    assert (status.rollout.reason, status.rollout.phase) == ("Initial", "Complete")
    assert status.plan.cost is None


def test_a_plan_waits_with_its_price_until_it_is_approved() -> None:
    world = pool()
    pods = set(world.pods)
    spec(world, content=KV)
    status = waiting(world)
    for _ in range(30):
        status = world.step()
    assert set(world.pods) == pods, "a worker was made before the approval"
    assert reason(status, "Progressing") == reason(status, "RolloutComplete") == "AwaitingApproval"
    assert reason(status, "Ready") == "FloorHeld"
    assert status.blocked == "AwaitingApproval"
    assert [b.reason for b in status.plan.blockers] == ["AwaitingApproval"]
    status = look(world)
    held = status.sessions.active
    cost = status.plan.cost
    assert cost is not None
    assert (cost.sessions, cost.held, ways(status.plan)["Convert"].sessions) == (held, held, held)
    assert cost.bytes_to_move == held * 10 * 391680 > 0
    assert (cost.tokens_to_replay, cost.surge_devices, cost.groups) == (0, 1, 3)
    assert status.plan.actual is None
    spec(world, request=f"approve@{status.rollout.id}")
    done = until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    assert done.plan.blockers == []


def test_what_was_planned_stands_beside_what_came_of_it() -> None:
    world = pool(Approval.AUTO)
    spec(world, content=KV)
    seen: list[PlanStatus] = []

    def done(status: PoolStatus) -> bool:
        seen.append(status.plan)
        return reason(status, "RolloutComplete") == "AllGroupsUpdated"

    plan = until(world, done).plan
    begun = [p for p in seen if p.actual is not None]
    assert {p.cost.model_dump_json() for p in begun if p.cost} == {plan.cost.model_dump_json() if plan.cost else ""}
    assert plan.actual is not None
    assert plan.actual.held > 0
    assert plan.actual.seconds is not None
    assert plan.actual.seconds > 0
    assert all(p.actual.seconds is None for p in begun[:-1] if p.actual)


def test_a_weights_change_is_priced_as_hops_and_replays() -> None:
    world = pool()
    spec(world, content=WEIGHTS)
    waiting(world)
    status = look(world)
    found, held = ways(status.plan), status.sessions.active
    assert found["Replay"].sessions == held
    assert found["Replay"].tokens == held * TOKENS
    assert found["Exact"].sessions > 0
    assert status.plan.warnings[0].startswith("quality unmeasured")
    spec(world, gate=GateRule("g"))
    assert not [w for w in look(world).plan.warnings if "unmeasured" in w]


@pytest.mark.parametrize("verb", ["approve@another", "pause@another"])
def test_an_approval_of_another_plan_is_none(verb: str) -> None:
    world = pool()
    spec(world, content=KV)
    waiting(world)
    spec(world, request=verb)
    assert world.step().rollout.phase == "AwaitingApproval"


def test_an_approval_does_not_outlive_its_plan() -> None:
    world = pool()
    spec(world, content=KV)
    spec(world, request=f"approve@{waiting(world).rollout.id}")
    until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    spec(world, content=OLD)
    assert waiting(world).plan.id != ""


def test_going_back_needs_no_approval() -> None:
    world = pool()
    spec(world, content=KV)
    waiting(world)
    spec(world, content=OLD)
    assert until(world, lambda s: s.rollout.phase == "Complete").rollout.reason == "Revert"


def test_an_unknown_price_holds_nothing_up() -> None:
    world = cluster(content='{"r":"a"}')
    spec(world, content='{"r":"b"}')
    done = until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    assert done.plan.cost is None
    assert done.plan.actual is not None


def test_a_price_of_another_shape_is_forgotten() -> None:
    world = pool(Approval.AUTO)
    spec(world, content=KV)
    until(world, lambda s: reason(s, "RolloutComplete") == "AllGroupsUpdated")
    record = max(world.revisions.values(), key=lambda r: r.record.stable).record
    assert record.price is not None
    annotations = {k: v for k, v in record.to_annotations().items() if v is not None}
    older = {**annotations, "kvroll.dev/price": '{"sessions": 3}'}
    assert type(record).from_annotations(older).price is None
