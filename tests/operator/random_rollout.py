"""Random sequences of wishes and faults for the simulated cluster, each from a seed, so that any can be looked at again."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kvroll_core.plan import OnFailure
from kvroll_operator.api.gate import GatePoint, GateSource
from kvroll_operator.api.pool import Approval
from kvroll_operator.rollout.facts.desired import Desired, GateRule
from kvroll_operator.rollout.facts.observed import SessionPolicy
from kvroll_operator.rollout.facts.view import View
from kvroll_operator.rollout.show.status import render
from tests.operator.simulated_cluster import Cluster
from tests.operator.simulated_world import InvariantError

A, B, C, D = ('{"r":"a"}', '{"r":"b"}', '{"r":"c"}', '{"r":"d"}')
BROKEN = '{"r":"broken"}'
SETTLE_TICKS = 400
Action = Callable[[Cluster, random.Random], None]
POINTS = (
    (GatePoint.CANARY,),
    (GatePoint.EVERY_GROUP,),
    (GatePoint.CANARY, GatePoint.FINAL),
    (GatePoint.EVERY_GROUP, GatePoint.FINAL),
)


@dataclass
class Outcome:
    """What became of one sequence. `edges` counts the steps between phases that the table of edges does not have."""

    seed: int
    violation: str = ""
    is_converged: bool = True
    edges: Counter[tuple[str, str]] = field(default_factory=Counter)
    done: list[str] = field(default_factory=list)


def play(seed: int) -> Outcome:
    """One sequence: a pool, up to fourteen wishes and faults, then calm, in which it must settle."""
    draw = random.Random(seed)
    cluster = Cluster(_pool(draw), devices=0, seed=seed, broken=[BROKEN])
    cluster.has_figures = False
    cluster.devices = cluster.desired.replicas + draw.randint(0, 2) * cluster.desired.group_size
    cluster.skew_seconds = draw.choice([0.0, 0.0, 10.0, 45.0])
    failure_rate = draw.choice([0.0, 0.0, 0.3])
    found = Outcome(seed)
    try:
        _run(cluster, 8, failure_rate)
        for _ in range(draw.randint(1, 14)):
            name = draw.choice(_NAMES)
            found.done.append(name)
            ACTIONS[name][1](cluster, draw)
            _run(cluster, draw.choice([1, 1, 2, 6]), failure_rate)
        found.is_converged = _settles(cluster)
    except InvariantError as error:
        found.violation = str(error)
    found.edges = cluster.undeclared
    return found


def _run(cluster: Cluster, ticks: int, failure_rate: float) -> None:
    for _ in range(ticks):
        cluster.go(failure_rate=failure_rate)


def _pool(draw: random.Random) -> Desired:
    size, groups, surge = draw.randint(1, 2), draw.randint(1, 4), draw.randint(0, 2)
    return Desired(
        "p",
        "u",
        A,
        replicas=size * groups,
        group_size=size,
        max_surge=surge,
        max_unavailable=draw.randint(0, 1) if surge else 1,
        min_ready_seconds=draw.choice([0, 0, 45]),
        on_failure=draw.choice(list(OnFailure)),
        partition=draw.choice([0, 0, 0, 1]),
        approval=draw.choice([Approval.AUTO, Approval.AUTO, Approval.PLAN]),
        gate=draw.choice([None, None, _rule(draw)]),
        progress_deadline_seconds=420,
        policy=SessionPolicy(
            parallel=draw.choice([1, 5]), deadline_seconds=600, drops_late=draw.choice([False, False, True])
        ),
    )


def _rule(draw: random.Random) -> GateRule:
    source = draw.choice([GateSource.BUILTIN, GateSource.BUILTIN, GateSource.HTTP, GateSource.PROMETHEUS])
    return GateRule(draw.choice(["h1", "h2"]), source, draw.choice(POINTS), 300, draw.random() < 0.2)


def _want(cluster: Cluster, **changes: object) -> None:
    desired = cluster.desired
    cluster.desired = replace(desired, generation=desired.generation + 1, **changes)  # type: ignore[arg-type]


def _victim(cluster: Cluster, draw: random.Random) -> str:
    return draw.choice(sorted(cluster.pods)) if cluster.pods else ""


def _spec(cluster: Cluster, draw: random.Random) -> None:
    _want(cluster, content=draw.choice([A, B, B, C, D, BROKEN]))


def _scale(cluster: Cluster, draw: random.Random) -> None:
    _want(cluster, replicas=draw.randint(0, 4 * cluster.desired.group_size))


def _autoscale(cluster: Cluster, draw: random.Random) -> None:
    """An autoscaler changes its mind in each period."""
    for _ in range(5):
        _want(cluster, replicas=draw.randint(1, 4 * cluster.desired.group_size))
        cluster.go()


def _pause(cluster: Cluster, draw: random.Random) -> None:
    _want(cluster, paused=draw.random() < 0.6)


def _knobs(cluster: Cluster, draw: random.Random) -> None:
    _want(cluster, partition=draw.randint(0, 2), approval=draw.choice(list(Approval)))


def _request(cluster: Cluster, draw: random.Random) -> None:
    plans = [r.record.plan for r in cluster.revisions.values() if r.record.plan]
    newest = max(plans, key=lambda p: p.seq, default=None)
    verb = draw.choice(["pause", "resume", "approve", "approve", "abort", "rollback", "retry"])
    cluster.desired = replace(cluster.desired, request=f"{verb}@{newest.id}" if newest else "")


def _gate(cluster: Cluster, draw: random.Random) -> None:
    _want(cluster, gate=draw.choice([None, _rule(draw)]))


def _verdict(cluster: Cluster, draw: random.Random) -> None:
    cluster.gate.verdicts[draw.choice([A, B, C, D])] = draw.choice(["Fail", "Inconclusive"])


def _forget_run(cluster: Cluster, draw: random.Random) -> None:
    cluster.gate.run = None


def _wait(cluster: Cluster, draw: random.Random) -> None:
    _run(cluster, draw.randint(1, 20), 0.0)


def _drain(cluster: Cluster, draw: random.Random) -> None:
    name = _victim(cluster, draw)
    if name:
        cluster.desired = replace(cluster.desired, request=f"drain@{cluster.pods[name].pod.uid}")


def _cancel(cluster: Cluster, draw: random.Random) -> None:
    """A user deletes a WorkerDrain."""
    if cluster.drains:
        cluster.delete_drain(draw.choice(sorted(cluster.drains)))


def _refuse(cluster: Cluster, draw: random.Random) -> None:
    cluster.refuses_until = cluster.now + draw.choice([60, 300, 900])


def _scribble(cluster: Cluster, draw: random.Random) -> None:
    """Somebody writes into the record, and it is put right after a while; or an annotation is gone for good."""
    if not cluster.revisions:
        return
    short = draw.choice(sorted(cluster.revisions))
    if draw.random() < 0.7:
        cluster.unreadable_until = cluster.now + draw.choice([30, 120])
        return
    held = cluster.revisions[short]
    lost = draw.choice([{"done": frozenset()}, {"turn": ()}, {"approved": ""}, {"evidence": ()}])
    cluster.revisions[short] = replace(held, record=replace(held.record, **lost))  # type: ignore[arg-type]


def _on_worker(fault: Callable[[Cluster, str], None]) -> Action:
    def act(cluster: Cluster, draw: random.Random) -> None:
        name = _victim(cluster, draw)
        if name:
            fault(cluster, name)

    return act


ACTIONS: dict[str, tuple[int, Action]] = {
    "spec": (5, _spec),
    "scale": (3, _scale),
    "request": (3, _request),
    "autoscale": (1, _autoscale),
    "pause": (1, _pause),
    "knobs": (1, _knobs),
    "gate": (1, _gate),
    "verdict": (1, _verdict),
    "forget run": (1, _forget_run),
    "wait": (2, _wait),
    "drain": (1, _drain),
    "cancel": (2, _cancel),
    "refuse": (1, _refuse),
    "scribble": (1, _scribble),
    "crash": (1, _on_worker(Cluster.crash)),
    "kill": (1, _on_worker(Cluster.kill)),
    "end": (1, _on_worker(Cluster.end)),
    "silence": (1, _on_worker(lambda cluster, name: cluster.silence(name, 6))),
    "unready": (1, _on_worker(lambda cluster, name: cluster.unready(name, 6))),
    "lose node": (1, _on_worker(Cluster.lose_node)),
    "hang": (1, _on_worker(lambda cluster, name: cluster.hang(name, 30))),
    "strip": (1, _on_worker(Cluster.strip)),
    "relabel": (1, _on_worker(Cluster.relabel)),
    "unprotect": (1, _on_worker(Cluster.unprotect)),
}
_NAMES = [name for name, (weight, _) in ACTIONS.items() for _ in range(weight)]


def _settles(cluster: Cluster) -> bool:
    """The faults stop: enough devices, nodes come back, nothing is held back, the target works."""
    desired = cluster.desired
    workers = max(desired.replicas, desired.group_size)
    _want(
        cluster,
        paused=False,
        request="",
        partition=0,
        approval=Approval.AUTO,
        content=A if desired.content == BROKEN else desired.content,
        replicas=workers,
    )
    cluster.gate.verdicts.clear()
    cluster.devices = 3 * workers + 4 * desired.group_size + 4
    cluster.calm()
    if _wait_quiet(cluster):
        return True
    status = cluster.step()
    if any(condition.reason == "DrainCancelled" for condition in status.conditions):
        # A drain that a user deletes stays cancelled until the spec changes, also one that was deleted just as it changed.
        _want(cluster)
        return _wait_quiet(cluster)
    if "nothing to measure against" in status.gate.reason:
        # No old worker serves: only a person can let the new revision in unmeasured.
        cluster.desired = replace(cluster.desired, gate=None, request=f"retry@{status.rollout.id}")
        return _wait_quiet(cluster)
    return False


def _wait_quiet(cluster: Cluster) -> bool:
    quiet = 0
    for _ in range(SETTLE_TICKS):
        view = cluster.go()
        quiet = quiet + 1 if _is_quiet(cluster, view) else 0
        if quiet >= 5:
            return True
    return False


def _is_quiet(cluster: Cluster, view: View) -> bool:
    serving = sum(1 for p in cluster.observe().pods if cluster.serves(p))
    if not serving == len(cluster.pods) == cluster.desired.num_workers:
        return False
    status = render(view)
    is_complete = next(c.status for c in status.conditions if c.type == "RolloutComplete") == "True"
    return bool(status.failed_revisions) or is_complete
