"""The gate in told sequences: what waits for its verdict, what follows it, and what is measured again."""

from dataclasses import replace

import pytest

from kvroll_core.plan import OnFailure
from kvroll_operator.api.gate import GatePoint, GateSource
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.rollout.facts.desired import GateRule
from kvroll_operator.rollout.transition import transition
from tests.operator.simulated_cluster import Cluster
from tests.operator.test_rollout_stories import A, B, C, cluster, reason, spec, until

GATE = GateRule("hash1")


def gated(gate: GateRule = GATE, **knobs: object) -> Cluster:
    return cluster(gate=gate, **knobs)  # type: ignore[arg-type]


def complete(status: PoolStatus) -> bool:
    return reason(status, "RolloutComplete") == "AllGroupsUpdated"


def points(world: Cluster) -> list[str]:
    return [effect.point for effect in world.gate.started]


def test_without_a_gate_the_quality_is_unmeasured() -> None:
    world = cluster()
    spec(world, content=B)
    status = until(world, complete)
    assert (status.gate.verdict, reason(status, "GatePassed")) == ("NotRun", "NotRun")
    assert "unmeasured" in status.gate.reason
    assert world.gate.started == []


def test_the_first_rollout_of_a_pool_is_not_measured() -> None:
    world = gated()
    assert world.gate.started == []
    status, _ = transition(world.desired, world.observe())
    assert (status.gate.verdict, reason(status, "RolloutComplete")) == ("NotRun", "AllGroupsUpdated")


def test_a_canary_is_judged_before_it_takes_traffic() -> None:
    world = gated()
    spec(world, content=B)
    status = until(world, lambda s: any(g.phase == "Gating" for g in s.groups))
    status = until(world, lambda s: s.gate.verdict == "Running")
    assert (status.ready, status.blocked, reason(status, "GatePassed")) == ("3/3", "Gate", "Running")
    assert (status.gate.point, status.updated) == ("Canary", "0/3")
    (started,) = world.gate.started
    assert started.baseline is not None
    assert started.candidate is not None
    assert started.candidate.revision == status.update_revision != started.baseline.revision
    status = until(world, complete)
    assert points(world) == ["Canary"], "one measurement for the whole roll"
    assert (status.gate.verdict, status.gate.samples, reason(status, "GatePassed")) == ("Pass", 7, "Passed")
    assert len(status.gate.digest) == 64
    assert world.revisions[status.gate.evidence].record.evidence[0].digest == status.gate.digest


def test_only_the_canary_is_in_turn_before_its_pass() -> None:
    world = gated(max_surge=2, devices=6)
    spec(world, content=B)
    most = {"before": 0, "after": 0}

    def watched(status: PoolStatus) -> bool:
        holder = world.revisions.get(status.update_revision)
        if holder is not None:
            when = "after" if holder.record.evidence else "before"
            most[when] = max(most[when], len(holder.record.turn))
        return complete(status)

    until(world, watched)
    assert most == {"before": 1, "after": 2}


@pytest.mark.parametrize(
    ("verdict", "on_failure", "ended", "then"),
    [
        ("Fail", OnFailure.PAUSE, "GateFailed", OnFailure.PAUSE),
        ("Fail", OnFailure.ROLLBACK, "GateFailed", OnFailure.ROLLBACK),
        ("Inconclusive", OnFailure.ROLLBACK, "GateInconclusive", OnFailure.PAUSE),
    ],
)
def test_a_verdict_that_is_no_pass_ends_the_plan_and_closes_nothing(
    verdict: str, on_failure: OnFailure, ended: str, then: OnFailure
) -> None:
    world = gated(on_failure=on_failure)
    serving = set(world.pods)
    world.gate.verdicts[B] = verdict
    spec(world, content=B)
    target = until(world, lambda s: bool(s.failed_revisions)).failed_revisions[0]
    pin = world.revisions[target].record.pin
    assert pin is not None
    assert (pin.reason, pin.then) == (ended, then)
    status = until(world, lambda s: set(world.pods) == serving and s.ready == "3/3")
    assert not world.drains, "no worker was closed"
    for _ in range(5):
        status = world.step()
    assert status.gate.verdict == verdict, "shown beside the way back, too"
    assert len(world.gate.started) == 1, "a stored verdict stands"
    if then is OnFailure.PAUSE:
        assert reason(status, "Stalled") == ended
        assert status.rollout.phase == "Failed"


def test_a_retry_measures_anew() -> None:
    world = gated()
    world.gate.verdicts[B] = "Inconclusive"
    spec(world, content=B)
    failed = until(world, lambda s: s.rollout.phase == "Failed")
    world.gate.verdicts.clear()
    spec(world, request=f"retry@{failed.rollout.id}")
    until(world, complete)
    assert len({effect.plan for effect in world.gate.started}) == 2


def test_every_group_and_the_end_are_judged() -> None:
    world = gated(replace(GATE, at=(GatePoint.EVERY_GROUP, GatePoint.FINAL)))
    spec(world, content=B)
    until(world, complete)
    groups = sorted(p for p in points(world) if p.startswith("G"))
    assert groups == ["G0", "G1", "G2"]
    assert (points(world)[0], points(world)[-1]) == ("Baseline", "Final")
    final = world.gate.started[-1]
    assert (final.baseline, final.is_kept) == (None, True), (
        "no old worker is left: the kept answers are measured against"
    )


def test_a_failed_end_pauses_with_the_groups_as_they_are() -> None:
    world = gated(replace(GATE, at=(GatePoint.CANARY, GatePoint.FINAL)))
    spec(world, content=B)
    until(world, lambda s: s.rollout.groups_updated == 3)
    world.gate.verdicts[B] = "Fail"
    status = until(world, lambda s: s.rollout.phase == "Failed")
    assert (status.updated, reason(status, "GatePassed"), status.gate.point) == ("3/3", "Failed", "Final")


def test_a_dry_run_records_and_lets_through() -> None:
    world = gated(replace(GATE, dry_run=True))
    world.gate.verdicts[B] = "Fail"
    spec(world, content=B)
    status = until(world, complete)
    assert (status.gate.verdict, status.gate.dry_run, reason(status, "GatePassed")) == ("Fail", True, "Failed")


def test_prometheus_judges_workers_that_serve_before_an_old_one_closes() -> None:
    world = gated(replace(GATE, source=GateSource.PROMETHEUS))
    spec(world, content=B)
    status = until(world, lambda s: s.gate.verdict == "Running")
    assert (status.ready, status.updated) == ("4/3", "1/3")
    assert not world.drains
    assert world.gate.started[0].baseline is None
    until(world, complete)


def test_drained_first_the_baseline_is_kept_before_the_drain() -> None:
    world = gated(replicas=1, devices=1, max_surge=0, max_unavailable=1)
    spec(world, content=B)
    until(world, complete)
    assert points(world) == ["Baseline", "Canary"]
    kept, canary = world.gate.started
    assert (kept.candidate, canary.baseline, canary.is_kept) == (None, None, True)


def test_drained_first_prometheus_judges_before_the_group_is_done() -> None:
    world = gated(replace(GATE, source=GateSource.PROMETHEUS), devices=3, max_surge=0, max_unavailable=1)
    world.gate.verdicts[B] = "Fail"
    spec(world, content=B)
    seen: list[int] = []

    def failed(status: PoolStatus) -> bool:
        seen.append(status.rollout.groups_updated)
        return status.rollout.phase == "Failed"

    until(world, failed)
    assert max(seen) == 0
    assert points(world) == ["Canary"]


def test_drained_first_a_failed_gate_goes_back() -> None:
    world = gated(replicas=1, devices=1, max_surge=0, max_unavailable=1)
    world.gate.verdicts[B] = "Inconclusive"
    before = next(iter(world.pods.values())).pod.revision
    spec(world, content=B)
    until(world, lambda s: s.rollout.phase == "Failed")
    until(world, lambda s: s.ready == "1/1")
    assert {sim.pod.revision for sim in world.pods.values()} == {before}


def test_an_old_worker_that_restarts_while_prometheus_judges_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.operator.simulated_gate.RUN_SECONDS", 1e9)
    world = gated(replace(GATE, source=GateSource.PROMETHEUS))
    spec(world, content=B)
    status = until(world, lambda s: s.gate.verdict == "Running")
    (group,) = (g.id for g in status.groups if g.phase == "Gating")
    old = next(n for n, s in world.pods.items() if s.pod.group == group and s.pod.revision == status.current_revision)
    world.crash(old)
    for _ in range(3):
        status = world.step()
    assert (status.gate.verdict, status.ready) == ("Running", "4/3")


def test_an_edited_gate_is_owed_again() -> None:
    world = gated()
    spec(world, content=B)
    until(world, lambda s: s.rollout.groups_updated == 1)
    spec(world, gate=replace(GATE, hash="hash2"))
    world.gate.verdicts[B] = "Fail"
    until(world, lambda s: s.rollout.phase == "Failed")
    assert [effect.gate_hash for effect in world.gate.started] == ["hash1", "hash2"]


def test_a_gate_taken_away_holds_nothing() -> None:
    world = gated()
    world.gate.verdicts[B] = "Fail"
    spec(world, content=B)
    until(world, lambda s: s.gate.verdict == "Running")
    spec(world, gate=None)
    status = until(world, complete)
    assert status.gate.verdict == "NotRun"
    assert world.gate.run is None


def test_a_restarted_operator_measures_again_and_a_restarted_worker_too() -> None:
    world = gated()
    spec(world, content=B)
    until(world, lambda s: s.gate.verdict == "Running")
    world.gate.run = None
    until(world, lambda s: s.gate.verdict == "Running")
    assert world.gate.started[0] == world.gate.started[1]
    new = world.gate.started[1].candidate
    assert new is not None
    world.crash(new.worker_id)
    until(world, complete)
    assert points(world) == ["Canary", "Canary", "Canary"]


def test_a_newer_spec_takes_over_while_the_gate_runs() -> None:
    world = gated()
    spec(world, content=B)
    until(world, lambda s: s.gate.verdict == "Running")
    spec(world, content=C)
    until(world, complete)
    assert len({effect.plan for effect in world.gate.started}) == 2


def test_a_revert_waits_for_no_gate() -> None:
    world = gated()
    spec(world, content=B)
    until(world, lambda s: s.gate.verdict == "Running")
    spec(world, content=A)
    status = until(world, complete)
    assert (status.rollout.reason, world.gate.run) == ("Revert", None)


def test_without_an_old_worker_there_is_no_verdict() -> None:
    """Every old worker is broken: a built-in gate has nothing to measure against, and says so instead of waiting or passing."""
    world = gated(max_surge=1, progress_deadline_seconds=6000)
    world.broken.add(A)
    for name in list(world.pods):
        world.end(name)
    for _ in range(9):
        world.step()
    spec(world, content=B)
    status = until(world, lambda s: s.rollout.phase == "Failed")
    assert (reason(status, "Stalled"), reason(status, "GatePassed")) == ("GateInconclusive", "Inconclusive")
    assert "nothing to measure against" in status.gate.reason
    spec(world, gate=None, request=f"retry@{status.rollout.id}")
    until(world, complete)


def test_the_deadline_of_a_group_leaves_the_gate_its_own_time() -> None:
    world = gated(replace(GATE, timeout_seconds=100_000), progress_deadline_seconds=300)
    spec(world, content=B)
    until(world, lambda s: s.gate.verdict == "Running")
    for _ in range(30):
        if world.gate.run is not None:
            world.gate.run = replace(world.gate.run, started_at=world.now)
        status = world.step()
    assert (status.gate.verdict, status.rollout.phase) == ("Running", "Rolling")
    until(world, complete)


def test_a_group_that_serves_nothing_enters_beside_a_canary_without_a_device() -> None:
    world = gated(devices=3)
    spec(world, content=B)
    until(world, lambda s: s.blocked == "NoSurgeDevice")
    world.broken.add(A)
    name = next(name for name, sim in world.pods.items() if sim.pod.group == 1)
    world.crash(name)
    until(world, lambda s: world.pods[name].pod.is_closed is True)
    world.end(name)
    status = until(world, lambda s: s.gate.verdict == "Pass")  # its device lets the canary start
    assert status.gate.point == "Canary"
