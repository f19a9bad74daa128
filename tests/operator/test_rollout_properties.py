"""Random faults and spec changes against the simulated cluster: no invariant breaks, and it settles once the faults stop."""

import os
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvroll_core.plan import OnFailure
from kvroll_operator.api.gate import GatePoint, GateSource
from kvroll_operator.api.pool import Approval
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.rollout.facts.desired import Desired, GateRule
from tests.operator.simulated_cluster import Cluster

A, B, C, D = ('{"r":"a"}', '{"r":"b"}', '{"r":"c"}', '{"r":"d"}')
BROKEN = '{"r":"broken"}'
DEADLINE_SECONDS = 420

_GATES = st.builds(
    GateRule,
    hash=st.sampled_from(["h1", "h2"]),
    source=st.sampled_from([GateSource.BUILTIN, GateSource.BUILTIN, GateSource.HTTP, GateSource.PROMETHEUS]),
    at=st.sampled_from(
        [
            (GatePoint.CANARY,),
            (GatePoint.EVERY_GROUP,),
            (GatePoint.CANARY, GatePoint.FINAL),
            (GatePoint.EVERY_GROUP, GatePoint.FINAL),
        ]
    ),
    timeout_seconds=st.just(300),
    dry_run=st.sampled_from([False, False, False, True]),
)
_ACTIONS = st.one_of(
    st.tuples(st.just("spec"), st.sampled_from([A, B, C, D, BROKEN])),
    st.tuples(st.just("scale"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["crash", "kill", "end", "silence", "unready"]), st.integers(0, 9)),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(
        st.just("request"), st.sampled_from(["pause", "resume", "approve", "approve", "abort", "rollback", "retry"])
    ),
    st.tuples(st.just("gate"), st.none() | _GATES),
    st.tuples(st.just("verdict"), st.tuples(st.sampled_from([A, B, C, D]), st.sampled_from(["Fail", "Inconclusive"]))),
    st.tuples(st.just("forget run"), st.just(0)),
    st.tuples(st.just("drain"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(1, 6)),
    st.tuples(st.just("wait"), st.integers(1, 20)),
)
_POOLS = st.builds(
    lambda size, groups, surge, unavailable, ready, failure, partition, approval, gate: Desired(
        "p",
        "u",
        A,
        replicas=size * groups,
        group_size=size,
        max_surge=surge,
        max_unavailable=max(unavailable, 0 if surge else 1),
        min_ready_seconds=ready,
        on_failure=failure,
        partition=partition,
        approval=approval,
        gate=gate,
        progress_deadline_seconds=DEADLINE_SECONDS,
    ),
    st.integers(1, 2),
    st.integers(1, 4),
    st.integers(0, 2),
    st.integers(0, 1),
    st.sampled_from([0, 0, 45]),
    st.sampled_from(OnFailure),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([Approval.AUTO, Approval.AUTO, Approval.PLAN]),
    st.none(),
)
_GATED = st.builds(lambda desired, gate: replace(desired, gate=gate), _POOLS, _GATES)
_Action = tuple[str, object]


def act(cluster: Cluster, action: _Action) -> None:
    kind, value = action
    desired = cluster.desired
    if kind == "spec":
        cluster.desired = replace(desired, content=str(value), generation=desired.generation + 1)
    elif kind == "scale":
        cluster.desired = replace(
            desired, replicas=int(str(value)) * desired.group_size, generation=desired.generation + 1
        )
    elif kind == "pause":
        cluster.desired = replace(desired, paused=bool(value))
    elif kind == "request":
        plans = [r.record.plan for r in cluster.revisions.values() if r.record.plan]
        newest = max(plans, key=lambda p: p.seq, default=None)
        cluster.desired = replace(desired, request=f"{value}@{newest.id}" if newest else "")
    elif kind == "gate":
        cluster.desired = replace(desired, gate=value, generation=desired.generation + 1)  # type: ignore[arg-type]
    elif kind == "verdict":
        content, verdict = cast(tuple[str, str], value)
        cluster.gate.verdicts[content] = verdict
    elif kind == "forget run":
        cluster.gate.run = None
    elif kind != "wait" and cluster.pods:
        name = sorted(cluster.pods)[int(str(value)) % len(cluster.pods)]
        if kind == "drain":
            cluster.desired = replace(desired, request=f"drain@{cluster.pods[name].pod.uid}")
        elif kind in ("silence", "unready"):
            getattr(cluster, kind)(name, 6)
        else:
            getattr(cluster, kind)(name)


def condition(status: PoolStatus, kind: str) -> str:
    return next(c.status for c in status.conditions if c.type == kind)


def settle(cluster: Cluster, ticks: int = 400) -> PoolStatus:
    """Lets the faults stop: enough devices, not paused, nothing to approve, a target that works and no partition."""
    desired = cluster.desired
    content = A if desired.content == BROKEN else desired.content
    workers = max(desired.replicas, desired.group_size)
    cluster.desired = replace(
        desired,
        paused=False,
        request="",
        partition=0,
        approval=Approval.AUTO,
        content=content,
        replicas=workers,
        generation=desired.generation + 1,
    )
    cluster.gate.verdicts.clear()
    cluster.devices = 3 * workers + 4
    for revision in list(cluster.revisions.values()):
        if revision.record.hold:
            cluster.revisions[revision.short] = replace(revision, record=replace(revision.record, hold=False))
    status = wait_quiet(cluster, ticks)
    if status is None and "nothing to measure against" in cluster.step().gate.reason:
        # No old worker serves: only a person can let the new revision in unmeasured.
        failed = cluster.step().rollout.id
        cluster.desired = replace(cluster.desired, gate=None, request=f"retry@{failed}")
        status = wait_quiet(cluster, ticks)
    if status is not None:
        return status
    status = cluster.step()
    raise AssertionError(f"did not settle: {status.model_dump_json(by_alias=True, exclude_none=True)}")


def wait_quiet(cluster: Cluster, ticks: int) -> PoolStatus | None:
    quiet = 0
    for _ in range(ticks):
        status = cluster.step()
        quiet = quiet + 1 if is_quiet(cluster, status) else 0
        if quiet >= 5:
            return status
    return None


def is_quiet(cluster: Cluster, status: PoolStatus) -> bool:
    pinned = bool(status.failed_revisions)
    serving = sum(1 for p in cluster.observe().pods if cluster.serves(p))
    whole = serving == len(cluster.pods) == cluster.desired.num_workers
    return whole and (pinned or condition(status, "RolloutComplete") == "True")


def drive(desired: Desired, spare: int, seed: int, failure_rate: float, actions: list[_Action]) -> None:
    cluster = Cluster(desired, devices=desired.replicas + spare * desired.group_size, seed=seed, broken=[BROKEN])
    for _ in range(8):
        cluster.step(failure_rate=failure_rate)
    for action in actions:
        act(cluster, action)
        for _ in range(int(str(action[1])) if action[0] == "wait" else 1):
            cluster.step(failure_rate=failure_rate)
    settle(cluster)


_SEQUENCE = {
    "spare": st.integers(0, 2),
    "seed": st.integers(0, 2**16),
    "failure_rate": st.sampled_from([0.0, 0.0, 0.3]),
    "actions": st.lists(_ACTIONS, max_size=12),
}
_RUN = given(desired=_POOLS, **_SEQUENCE)
_GATED_RUN = given(desired=_GATED, **_SEQUENCE)
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=20, deadline=None, suppress_health_check=_QUIET)
@_RUN
def test_no_invariant_breaks_and_it_settles(
    desired: Desired, spare: int, seed: int, failure_rate: float, actions: list[_Action]
) -> None:
    drive(desired, spare, seed, failure_rate, actions)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=int(os.environ.get("KVROLL_EXAMPLES", "150")), deadline=None, suppress_health_check=_QUIET)
@_RUN
def test_many_more_sequences(
    desired: Desired, spare: int, seed: int, failure_rate: float, actions: list[_Action]
) -> None:
    drive(desired, spare, seed, failure_rate, actions)


@settings(max_examples=20, deadline=None, suppress_health_check=_QUIET)
@_GATED_RUN
def test_no_gate_is_passed_by(
    desired: Desired, spare: int, seed: int, failure_rate: float, actions: list[_Action]
) -> None:
    drive(desired, spare, seed, failure_rate, [("spec", B), *actions])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=int(os.environ.get("KVROLL_EXAMPLES", "80")), deadline=None, suppress_health_check=_QUIET)
@_GATED_RUN
def test_many_more_gated_sequences(
    desired: Desired, spare: int, seed: int, failure_rate: float, actions: list[_Action]
) -> None:
    drive(desired, spare, seed, failure_rate, [("spec", B), *actions])
