"""The gate in the simulated cluster: runs that take a while, and the judge of the gate's invariant, in words of its own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from kvroll_core.plan import Plan, PlanReason, RolloutRecord, StoredEvidence
from kvroll_operator.api.gate import GatePoint, GateSource
from kvroll_operator.rollout.act import effects as fx
from kvroll_operator.rollout.facts.observed import GateRun, Pod
from tests.operator.simulated_world import TICK_SECONDS, World, require

if TYPE_CHECKING:
    from tests.operator.simulated_cluster import Cluster

RUN_SECONDS = 2 * TICK_SECONDS


class SimulatedGate:
    """The operator's runner: at most one run. `verdicts` are those of contents, Pass where none is named."""

    def __init__(self) -> None:
        self.run: GateRun | None = None
        self.verdicts: dict[str, str] = {}
        self.found: set[str] = set()
        self.started: list[fx.StartGate] = []

    def start(self, effect: fx.StartGate, now: float) -> None:
        require(effect.candidate is not None or effect.point == "Baseline", "a run measures somebody")
        old, new = effect.baseline, effect.candidate
        self.started.append(effect)
        self.run = GateRun(
            effect.plan,
            effect.point,
            effect.gate_hash,
            old.instance_id if old else "",
            new.instance_id if new else "",
            now,
        )

    def tick(self, world: World) -> None:
        """The run gets on; what it asks must be there to answer."""
        run = self.run
        if run is None or run.is_over or world.now - run.started_at < RUN_SECONDS:
            return
        alive = {
            f"{sim.pod.uid}/{sim.process.boot}": world.revisions[sim.pod.revision].content
            for sim in world.pods.values()
            if sim.process is not None and not sim.process.sealed
        }
        verdict = self.verdicts.get(alive.get(run.candidate, ""), "Pass")
        if any(asked and asked not in alive for asked in (run.baseline, run.candidate)):
            verdict = "Inconclusive"
        report = json.dumps({"verdict": verdict, "reason": f"run {len(self.started)}", "samples": 7})
        digest = hashlib.sha256(report.encode()).hexdigest()
        self.found.add(digest)
        self.run = replace(run, is_over=True, verdict=verdict, digest=digest, report=report)


def is_judged(cluster: Cluster, record: RolloutRecord, points: set[str]) -> bool:
    """A verdict that counts stands there, of one of those points and of the gate as it is."""
    gate = cluster.desired.gate
    return gate is None or any(
        e.gate_hash == gate.hash and e.point in points and (gate.dry_run or e.verdict == "Pass")
        for e in record.evidence
    )


def any_point(record: RolloutRecord) -> set[str]:
    return {e.point for e in record.evidence if e.point != "Baseline"}


def check_record(cluster: Cluster, before: RolloutRecord, after: RolloutRecord) -> None:
    """A gate is passed, for one write."""
    for found in set(after.evidence) - set(before.evidence):
        _check_found(cluster, found, before.evidence)
    plan, gate = after.plan, cluster.desired.gate
    if plan is None or gate is None or plan.reason is not PlanReason.UPDATE or before.plan is None:
        return
    if before.plan.id != plan.id or plan.ended:
        return
    in_turn, entered = {t.group for t in before.turn}, {t.group for t in after.turn} - {t.group for t in before.turn}
    through = after.done - before.done
    every = GatePoint.EVERY_GROUP in gate.at
    if entered and in_turn and not all(_is_through_gate(cluster, before, g, every) for g in in_turn):
        require(_is_rescue(cluster, plan, in_turn, entered), f"{entered} entered while {in_turn} are not judged")
    for group in through & in_turn:
        require(_is_through_gate(cluster, before, group, every), f"group {group} is done without a Pass")
    if after.stable >= plan.seq > before.stable and plan.began_at is not None:
        require(is_judged(cluster, before, any_point(before)), "the plan completed without a Pass")
        if GatePoint.FINAL in gate.at:
            require(is_judged(cluster, before, {"Final"}), "the plan completed without the Final Pass")


def _is_through_gate(cluster: Cluster, record: RolloutRecord, group: int, every: bool) -> bool:
    return is_judged(cluster, record, {f"G{group}"} if every else {"Canary"})


def _is_rescue(cluster: Cluster, plan: Plan, in_turn: set[int], entered: set[int]) -> bool:
    """Nothing of the group that enters works, and those in turn have no new worker yet."""
    pods = [s for s in cluster.pods.values() if s.pod.is_live]
    idle = not any(cluster.serves(p) for p in cluster.seen.pods if p.group in entered)
    new = [s for s in pods if s.pod.group in in_turn and s.pod.revision == plan.to and s.pod.scheduled]
    return idle and not new


def _check_found(cluster: Cluster, found: StoredEvidence, known: tuple[StoredEvidence, ...]) -> None:
    """What is stored was found by a run, or is no verdict. An older entry may only lose its report."""
    if any(replace(e, report="") == replace(found, report="") for e in known):
        return
    require(found.digest in cluster.gate.found or found.verdict == "Inconclusive", "evidence that no run has found")
    require(hashlib.sha256(found.report.encode()).hexdigest() == found.digest, "the digest is the report's")


def _holder(cluster: Cluster) -> RolloutRecord | None:
    records = [r.record for r in cluster.revisions.values() if r.record.plan]
    return max(records, key=lambda r: r.plan.seq if r.plan else 0, default=None)


def _owing(cluster: Cluster, pod: Pod) -> tuple[RolloutRecord, Plan] | None:
    """The record that must hold a Pass for that group in turn, and does not."""
    gate, record = cluster.desired.gate, _holder(cluster)
    if gate is None or record is None or record.plan is None or record.is_complete or cluster.desired.deleting:
        return None
    if record.plan.reason is not PlanReason.UPDATE or pod.group not in {t.group for t in record.turn}:
        return None
    if _is_through_gate(cluster, record, pod.group, GatePoint.EVERY_GROUP in gate.at):
        return None
    return record, record.plan


def check_opening(cluster: Cluster, pod: Pod) -> None:
    """A new worker takes no traffic in its turn before the Pass."""
    owing, gate = _owing(cluster, pod), cluster.desired.gate
    if owing is None or gate is None or gate.source is GateSource.PROMETHEUS:
        return
    require(pod.revision != owing[1].to, f"{pod.name} opened before the gate judged it")


def check_closing(cluster: Cluster, pod: Pod) -> None:
    """The first old worker of a group that surges stays open until the Pass."""
    owing = _owing(cluster, pod)
    if owing is None or pod.revision == owing[1].to or not cluster.serves(pod):
        return
    step = next(t.step for t in owing[0].turn if t.group == pod.group)
    others = [s.pod for s in cluster.pods.values() if s.pod.group == pod.group and s.pod.revision != owing[1].to]
    has_begun = any(p.is_closed for p in others) or any(d.rollout == owing[1].id for d in cluster.drains.values())
    require(step != "Surge" or has_begun, f"{pod.name} closed before the gate judged its group")
