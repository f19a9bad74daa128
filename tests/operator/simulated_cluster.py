"""A small cluster in memory for the pure rollout: every effect is carried out, and judged by the invariants first.

It judges by predicates of its own, not by the code under test.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from kvroll_core.plan import PlanReason, RolloutRecord, Step
from kvroll_core.revision import revision_name
from kvroll_operator.api.pool import Approval
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.rollout.act import effects as fx
from kvroll_operator.rollout.decide import writes
from kvroll_operator.rollout.facts.desired import Desired
from kvroll_operator.rollout.facts.observed import Observed, Pod, Revision, Tally, WorkerDrain
from kvroll_operator.rollout.facts.view import View
from kvroll_operator.rollout.show.phases import GroupPhase, group_phases, is_edge
from kvroll_operator.rollout.show.status import render
from kvroll_operator.rollout.transition import Effect, effects_of, look
from tests.operator import simulated_gate
from tests.operator.simulated_gate import SimulatedGate
from tests.operator.simulated_world import TICK_SECONDS, Process, SimPod, World, require

ORDER_SHARE, SHOWN_SHARE = 0.25, 0.05
"""Of the passes: those that are decided again with the objects in another order, and those of them that are rendered again, too."""


class Cluster(World):
    """The world with the operator's hands in it."""

    def __init__(self, desired: Desired, *, devices: int, seed: int, broken: Iterable[str] = ()) -> None:
        super().__init__(desired, devices=devices, seed=seed, broken=broken)
        self.gate = SimulatedGate()
        self.phases: dict[int, GroupPhase] = {}
        self.undeclared: Counter[tuple[str, str]] = Counter()

    def observe(self) -> Observed:
        return replace(super().observe(), gate=self.gate.run)

    def step(self, *, failure_rate: float = 0.0, passes: int = 3) -> PoolStatus:
        """Some passes of the operator, then one tick of the world; the status that the last pass showed."""
        return render(self.go(failure_rate=failure_rate, passes=passes))

    def go(self, *, failure_rate: float = 0.0, passes: int = 3) -> View:
        """The same without a status: what the last pass saw. The operator remembers nothing from pass to pass: each is a restart."""
        for _ in range(passes):
            self.seen = self.observe()
            self.closed_in_pass = set()
            view = look(self.desired, self.seen)
            effects = effects_of(view)
            self._check_phases(view)
            drawn = self.random.random()
            if drawn < ORDER_SHARE:
                self._check_order(view, effects, is_shown=drawn < SHOWN_SHARE)
            for effect in effects:
                if self.random.random() >= failure_rate:
                    self.apply(effect)
            self.check_revisions()
            if not effects:
                break
        self.tick()
        self.gate.tick(self)
        return view

    def _check_order(self, view: View, effects: tuple[Effect, ...], *, is_shown: bool) -> None:
        """The order in which the API server lists objects decides nothing, and shows nothing."""
        seen = self.seen
        turned = replace(seen, pods=seen.pods[::-1], revisions=seen.revisions[::-1], drains=seen.drains[::-1])
        other = look(self.desired, turned)
        require(effects_of(other) == effects, "the same objects must give the same effects")
        require(not is_shown or render(other) == render(view), "the same objects must be shown as the same")

    def _check_phases(self, view: View) -> None:
        """A group's phase follows the table of edges from each pass to the next."""
        now = group_phases(view)
        for group, phase in now.items():
            before = self.phases.get(group, phase)
            if before is not phase and not is_edge(before, phase):
                self.undeclared[before, phase] += 1
        self.phases = now

    # -- effects, each judged before it is done

    def apply(self, effect: Effect) -> None:
        getattr(self, f"_{type(effect).__name__}")(effect)

    def _sim(self, pod: Pod) -> SimPod | None:
        sim = self.pods.get(pod.name)
        return sim if sim is not None and sim.pod.uid == pod.uid else None

    def _instance(self, pod: Pod, instance_id: str) -> Process | None:
        sim = self._sim(pod)
        if (
            sim is None
            or sim.process is None
            or f"{pod.uid}/{sim.process.boot}" != instance_id
            or self.now < sim.silent_until
        ):
            return None
        return sim.process

    def _CreateRevision(self, effect: writes.CreateRevision) -> None:
        require(
            all(r.content != effect.content for r in self.revisions.values()), "two ControllerRevisions of one content"
        )
        self.serial += 1
        name = revision_name(effect.content)
        self.revisions[name] = Revision(
            name,
            name,
            f"u{self.serial}",
            str(self.serial),
            effect.number,
            effect.content,
            has_default_image=effect.has_default_image,
        )

    def _WriteRecord(self, effect: writes.WriteRecord) -> None:
        held = self.revisions.get(effect.revision.short)
        if held is None or held.resource_version != effect.revision.resource_version:
            return
        annotations = {key: value for key, value in effect.record.to_annotations().items() if value is not None}
        require(RolloutRecord.from_annotations(annotations) == effect.record, "a record must survive its annotations")
        self._check_drain_first(effect.record)
        simulated_gate.check_record(self, held.record, effect.record)
        self._check_approved(effect.record)
        self._check_scaling(held.record, effect.record)
        self.serial += 1
        self.revisions[held.short] = replace(held, record=effect.record, resource_version=str(self.serial))

    def _check_drain_first(self, record: RolloutRecord) -> None:
        """With a surge allowed, a group comes to be drained first only if there is nothing in it to drain; its turn may be dated anew."""
        known = {
            (t.group, t.step)
            for r in self.revisions.values()
            if _plan_id(r.record) == _plan_id(record)
            for t in r.record.turn
        }
        for turn in record.turn:
            if (turn.group, turn.step) in known:
                continue
            live = [s for s in self.pods.values() if s.pod.group == turn.group and s.pod.is_live]
            held = [s.pod.name for s in live if s.process and s.process.sessions]
            may = self.desired.max_surge == 0 or self.desired.max_unavailable > 0
            wrong = not may and turn.step is Step.DRAIN_FIRST and bool(held)
            require(not wrong, f"group {turn.group} drained first with sessions on {held}")

    def _check_approved(self, record: RolloutRecord) -> None:
        """No group enters a plan to a new revision that a user was to approve and has not."""
        plan = record.plan
        if plan is None or plan.reason is not PlanReason.UPDATE or self.desired.approval is not Approval.PLAN:
            return
        known = {turn.group for r in self.revisions.values() if r.record.plan == plan for turn in r.record.turn}
        entered = {turn.group for turn in record.turn} - known
        require(not entered or record.approved == plan.id, f"groups {entered} entered an unapproved plan")

    def _CreatePod(self, effect: fx.CreatePod) -> None:
        short, slot = effect.revision.short, (effect.group, effect.index)
        asked = {uid for r in self.revisions.values() for uid in r.record.leaving}
        for sim in self.pods.values():
            pod = sim.pod
            same = pod.slot == slot and pod.revision == short and pod.is_live and pod.uid not in asked
            require(
                not (same and not self._has_receipt(pod) and not (sim.process and sim.process.sealed)),
                f"duplicate of {pod.name}",
            )
        self._check_scope(effect)
        name = f"p-{short}-{effect.group}-{effect.index}-{effect.incarnation}"
        if name in self.pods:
            return
        if self.now < self.refuses_until:
            self.refused[effect.revision.content] = "QuotaExceeded"
            return
        self.refused.pop(effect.revision.content, None)
        self.serial += 1
        number = str(self.serial)
        self.pods[name] = SimPod(Pod(name, f"uid{number}", number, short, *slot, effect.incarnation, created=self.now))

    def _check_scope(self, effect: fx.CreatePod) -> None:
        """A new revision comes into a group in the group's turn, or where the plan has brought the group through."""
        records = [r.record for r in self.revisions.values() if r.record.plan]
        record = max(records, key=lambda r: r.plan.seq if r.plan else 0)
        plan = record.plan
        if (
            plan is None
            or record.is_complete
            or plan.reason is not PlanReason.UPDATE
            or effect.revision.short != plan.to
        ):
            return
        mine = effect.group in record.done or any(t.group == effect.group for t in record.turn)
        first = plan.base.get(effect.group, "") in ("", plan.to) and not any(
            r.record.stable for r in self.revisions.values()
        )
        same = plan.base.get(effect.group) == plan.to
        require(mine or first or same, f"group {effect.group} gets {plan.to} out of its turn")

    def _check_scaling(self, before: RolloutRecord, after: RolloutRecord) -> None:
        """What was approved and partitioned holds however the pool is scaled: a held-back revision never becomes the stable one."""
        plan, desired = after.plan, self.desired
        if plan is None or plan.reason is not PlanReason.UPDATE or not (after.stable >= plan.seq > before.stable):
            return
        require(desired.partition == 0, "a plan completed beside a partition")
        require(not desired.paused and not before.hold, "a plan completed in a pause")
        is_approved = desired.approval is not Approval.PLAN or before.approved == plan.id
        require(is_approved, "a plan completed that nobody approved")

    def _LabelAdmitted(self, effect: fx.LabelAdmitted) -> None:
        sim = self._sim(effect.pod)
        if sim is None:
            return
        if effect.admitted:
            simulated_gate.check_opening(self, effect.pod)
        else:
            simulated_gate.check_closing(self, effect.pod)
            self._check_floor(effect.pod)
            self.closed_in_pass.add(effect.pod.uid)
        at = self.now if effect.admitted else sim.pod.admitted_at
        self._touch(sim, replace(sim.pod, admitted=effect.admitted, admitted_at=at))

    def _check_floor(self, pod: Pod) -> None:
        serving = {p.uid: p for p in self.seen.pods if self.serves(p) and p.uid not in self.closed_in_pass}
        if pod.uid not in serving:
            return
        d = self.desired
        size, workers = d.group_size, 0 if d.deleting else -(-d.replicas // d.group_size) * d.group_size
        holder = max(
            (r for r in self.revisions.values() if r.record.plan),
            key=lambda r: r.record.plan.seq if r.record.plan else 0,
        )
        drains_first = any(t.group == pod.group and t.step is Step.DRAIN_FIRST for t in holder.record.turn)
        if drains_first:
            outside = sum(1 for p in serving.values() if p.group != pod.group)
            require(
                outside >= workers - max(1, d.max_unavailable) * size,
                f"closing {pod.name} leaves {outside} of {workers} outside its group",
            )
        else:
            left = len(serving) - 1
            require(left >= workers - d.max_unavailable * size, f"closing {pod.name} leaves {left} of {workers}")

    def serves(self, pod: Pod) -> bool:
        """The invariant's own words for it."""
        report = pod.report
        open_ = (
            pod.gone_by is None
            and pod.phase == "Running"
            and pod.admitted is True
            and pod.ready_since is not None
            and not pod.terminated
        )
        return open_ and report is not None and report.admitting and not report.sealed and not self._has_receipt(pod)

    def _has_receipt(self, pod: Pod) -> bool:
        return any(d.pod_uid == pod.uid and d.receipt for d in self.drains.values())

    def _SetAdmission(self, effect: fx.SetAdmission) -> None:
        process = self._instance(effect.pod, effect.instance_id)
        sim = self._sim(effect.pod)
        if process is None or sim is None:
            return
        require(sim.pod.admitted is effect.admitting, "the label is written before admission changes")
        if effect.admitting:
            simulated_gate.check_opening(self, effect.pod)
        process.admitting = effect.admitting and not process.sealed

    def _CreateDrain(self, effect: fx.CreateDrain) -> None:
        sim = self._sim(effect.pod)
        if sim is None:
            return
        require(sim.pod.admitted is False, "a WorkerDrain before the label was closed")
        require(all(d.pod_uid != effect.pod.uid for d in self.drains.values()), "two WorkerDrains of one Pod")
        self.serial += 1
        name = f"{effect.pod.name}-{effect.pod.uid}"
        self.drains[name] = WorkerDrain(
            name,
            f"d{self.serial}",
            effect.pod.name,
            effect.pod.uid,
            effect.reason,
            effect.rollout,
            self.now,
            group=effect.pod.group,
            policy=replace(effect.policy, per_worker=min(effect.policy.parallel, effect.policy.per_worker)),
        )

    def _DrainWorker(self, effect: fx.DrainWorker) -> None:
        process = self._instance(effect.pod, effect.instance_id)
        if process is None or process.sealed:
            return
        require(not process.admitting, "a drain of an admitting worker")
        if process.drain_id != effect.drain.uid:
            process.drain_id, process.tally = effect.drain.uid, Tally(held=process.sessions)
        process.targets = tuple(t.worker_id for t in effect.targets)

    def _RestoreLabels(self, effect: fx.RestoreLabels) -> None:
        sim = self._sim(effect.pod)
        if sim is not None:
            admitted = effect.pod.admitted if sim.pod.admitted is None else sim.pod.admitted
            self._touch(sim, replace(sim.pod, is_mislabelled=False, protected=True, admitted=admitted))

    def _ReleaseDrain(self, effect: fx.ReleaseDrain) -> None:
        for sim in self.pods.values():
            if sim.pod.uid == effect.drain.pod_uid and sim.process is not None and effect.instance_id:
                sim.process.drain_id, sim.process.targets = "", ()
        self.drains.pop(effect.drain.name, None)

    def _RecordDrain(self, effect: fx.RecordDrain) -> None:
        held = self.drains.get(effect.drain.name)
        if held is not None:
            changed = replace(
                held,
                phase=effect.phase,
                tally=effect.tally,
                remaining=effect.remaining,
                progressed_at=effect.progressed_at,
                last_error=effect.last_error,
            )
            self.drains[held.name] = changed

    def _SealWorker(self, effect: fx.SealWorker) -> None:
        process = self._instance(effect.pod, effect.instance_id)
        held = self.drains.get(effect.drain.name)
        if process is None or held is None or process.sessions:
            return
        require(not process.admitting, "a seal of an admitting worker")
        process.sealed = True
        self.drains[held.name] = replace(
            held, receipt=effect.instance_id, phase="Sealed", tally=held.tally.largest(process.tally), remaining=0
        )

    def _CancelDrain(self, effect: fx.CancelDrain) -> None:
        process = self._instance(effect.pod, effect.instance_id)
        if process is None:
            return
        process.drain_id, process.targets = "", ()
        self.delete_drain(effect.drain.name, phase="Cancelled", tally=effect.drain.tally.largest(effect.tally))

    def delete_drain(self, name: str, **changes: object) -> None:
        """What the API server does to an object with a finalizer."""
        held = self.drains.get(name)
        if held is not None:
            self.drains[name] = replace(held, is_deleting=True, **changes)  # type: ignore[arg-type]

    def _Unprotect(self, effect: fx.Unprotect) -> None:
        sim = self._sim(effect.pod)
        if sim is not None:
            self._touch(sim, replace(sim.pod, protected=False))

    def _DeletePod(self, effect: fx.DeletePod) -> None:
        sim = self._sim(effect.pod)
        if sim is None or sim.pod.resource_version != effect.pod.resource_version:
            return
        pod, process = sim.pod, sim.process
        receipts = {d.receipt for d in self.drains.values() if d.pod_uid == pod.uid}
        sealed = process is not None and f"{pod.uid}/{process.boot}" in receipts
        late = any(d.pod_uid == pod.uid and d.phase == "Expired" for d in self.drains.values())
        require(
            pod.admitted is None or pod.is_dead or effect.pod.terminated or sealed or late,
            f"{pod.name} deleted without evidence",
        )
        if process is not None and process.sessions:
            require(late and effect.may_hold_sessions, f"{pod.name} deleted with sessions")
        self._touch(sim, replace(pod, gone_by=self.now + TICK_SECONDS))

    def _DeleteDrain(self, effect: fx.DeleteDrain) -> None:
        require(
            all(s.pod.uid != effect.drain.pod_uid for s in self.pods.values()),
            "a WorkerDrain is kept while its Pod is there",
        )
        self.delete_drain(effect.drain.name)

    def _DeleteRevision(self, effect: fx.DeleteRevision) -> None:
        require(
            all(s.pod.revision != effect.revision.short for s in self.pods.values()),
            "a revision is kept while it has Pods",
        )
        self.revisions.pop(effect.revision.short, None)

    def _StartGate(self, effect: fx.StartGate) -> None:
        self.gate.start(effect, self.now)

    def _StopGate(self, effect: fx.StopGate) -> None:
        self.gate.run = None

    def _ReleasePool(self, effect: fx.ReleasePool) -> None:
        require(all(s.is_lost and s.pod.gone_by is not None for s in self.pods.values()), "the finalizer goes last")
        self.released = True

    def check_revisions(self) -> None:
        """Never a fourth serving revision."""
        open_ = {s.pod.revision for s in self.pods.values() if s.pod.is_live and s.pod.admitted}
        require(len(open_) <= 3, f"{len(open_)} serving revisions")


def _plan_id(record: RolloutRecord) -> str:
    return record.plan.id if record.plan else ""
