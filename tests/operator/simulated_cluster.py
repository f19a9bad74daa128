"""A small cluster in memory for the pure rollout: kubelet, scheduler, workers, and the invariants as checks on every effect.

It judges by predicates of its own, not by the code under test. A tick is 30 seconds.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kvroll_core.plan import Record, Step
from kvroll_core.revision import revision_name
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.rollout import effects as fx
from kvroll_operator.rollout.desired import Desired
from kvroll_operator.rollout.observed import Drain, Observed, Pod, Report, Revision, Tally
from kvroll_operator.rollout.transition import transition

TICK_SECONDS = 30.0


class InvariantError(AssertionError):
    """An effect broke an invariant."""


def require(truth: bool, what: str) -> None:
    """Raises InvariantError where it does not hold."""
    if not truth:
        raise InvariantError(what)


@dataclass
class Process:
    """The worker's process in a Pod's container."""

    boot: int
    admitting: bool = False
    sealed: bool = False
    sessions: int = 0
    drain_id: str = ""
    targets: tuple[str, ...] = ()
    tally: Tally = field(default_factory=Tally)


@dataclass
class SimPod:
    """A Pod and what runs in it."""

    pod: Pod
    process: Process | None = None
    silent_until: float = 0.0
    unready_until: float = 0.0
    crashes: bool = False


class Cluster:
    """One pool's world. `broken` are the contents whose workers never get Ready."""

    def __init__(self, desired: Desired, *, devices: int, seed: int, broken: Iterable[str] = ()) -> None:
        self.desired = desired
        self.devices = devices
        self.random = random.Random(seed)
        self.broken = set(broken)
        self.now = 1_000_000.0
        self.pods: dict[str, SimPod] = {}
        self.revisions: dict[str, Revision] = {}
        self.drains: dict[str, Drain] = {}
        self.released = False
        self.serial = 0
        self.seen = Observed(self.now)
        self.closed_in_pass: set[str] = set()

    # -- what the operator sees

    def observe(self) -> Observed:
        pods = tuple(replace(sim.pod, report=self._report(sim)) for sim in self.pods.values())
        return Observed(self.now, pods, tuple(self.revisions.values()), tuple(self.drains.values()))

    def _report(self, sim: SimPod) -> Report | None:
        process = sim.process
        if process is None or self.now < sim.silent_until or sim.pod.ready_since is None:
            return None
        return Report(
            instance_id=f"{sim.pod.uid}/{process.boot}",
            address=sim.pod.name,
            ready=True,
            admitting=process.admitting,
            sealed=process.sealed,
            drain_id=process.drain_id,
            sessions=process.sessions,
            tally=process.tally,
            remaining=process.sessions,
        )

    def step(self, *, failure_rate: float = 0.0, passes: int = 3) -> PoolStatus:
        """Some passes of the operator, then one tick of the world. The operator remembers nothing from pass to pass: each is a restart."""
        status = PoolStatus()
        for _ in range(passes):
            self.seen = self.observe()
            self.closed_in_pass = set()
            status, effects = transition(self.desired, self.seen)
            shuffled = Observed(self.now, self.seen.pods[::-1], self.seen.revisions[::-1], self.seen.drains[::-1])
            require(
                transition(self.desired, shuffled) == (status, effects),
                "I7: the same objects must give the same effects",
            )
            for effect in effects:
                if self.random.random() >= failure_rate:
                    self.apply(effect)
            self.check_revisions()
            if not effects:
                break
        self.tick()
        return status

    # -- effects, each judged before it is done

    def apply(self, effect: fx.Effect) -> None:
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

    def _touch(self, sim: SimPod, pod: Pod) -> None:
        self.serial += 1
        sim.pod = replace(pod, resource_version=str(self.serial))

    def _CreateRevision(self, effect: fx.CreateRevision) -> None:
        require(
            all(r.content != effect.content for r in self.revisions.values()), "two ControllerRevisions of one content"
        )
        self.serial += 1
        name = revision_name(effect.content)
        self.revisions[name] = Revision(name, name, f"u{self.serial}", str(self.serial), effect.number, effect.content)

    def _WriteRecord(self, effect: fx.WriteRecord) -> None:
        held = self.revisions.get(effect.revision.short)
        if held is None or held.resource_version != effect.revision.resource_version:
            return
        annotations = {key: value for key, value in effect.record.to_annotations().items() if value is not None}
        require(Record.from_annotations(annotations) == effect.record, "a record must survive its annotations")
        self._check_drain_first(effect.record)
        self.serial += 1
        self.revisions[held.short] = replace(held, record=effect.record, resource_version=str(self.serial))

    def _check_drain_first(self, record: Record) -> None:
        """With a surge allowed, a group is drained first only if there is nothing in it to drain."""
        known = {turn for revision in self.revisions.values() for turn in revision.record.turn}
        for turn in set(record.turn) - known:
            live = [s for s in self.pods.values() if s.pod.group == turn.group and s.pod.is_live]
            held = [s.pod.name for s in live if s.process and s.process.sessions]
            wrong = self.desired.max_surge > 0 and turn.step is Step.DRAIN_FIRST and bool(held)
            require(not wrong, f"group {turn.group} drained first with sessions on {held}")

    def _CreatePod(self, effect: fx.CreatePod) -> None:
        short, slot = effect.revision.short, (effect.group, effect.index)
        for sim in self.pods.values():
            pod = sim.pod
            same = pod.slot == slot and pod.revision == short and pod.is_live
            require(
                not (same and not self._has_receipt(pod) and not (sim.process and sim.process.sealed)),
                f"duplicate of {pod.name}",
            )
        name = f"p-{short}-{effect.group}-{effect.index}-{effect.incarnation}"
        if name in self.pods:
            return
        self.serial += 1
        number = str(self.serial)
        self.pods[name] = SimPod(Pod(name, f"uid{number}", number, short, *slot, effect.incarnation, created=self.now))

    def _LabelAdmitted(self, effect: fx.LabelAdmitted) -> None:
        sim = self._sim(effect.pod)
        if sim is None:
            return
        if not effect.admitted:
            self._check_floor(effect.pod)
            self.closed_in_pass.add(effect.pod.uid)
        self._touch(sim, replace(sim.pod, admitted=effect.admitted))

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
                f"I1: closing {pod.name} leaves {outside} of {workers} outside its group",
            )
        else:
            left = len(serving) - 1
            require(left >= workers - d.max_unavailable * size, f"I1: closing {pod.name} leaves {left} of {workers}")

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
        process.admitting = effect.admitting and not process.sealed

    def _CreateDrain(self, effect: fx.CreateDrain) -> None:
        sim = self._sim(effect.pod)
        if sim is None:
            return
        require(sim.pod.admitted is False, "I3: a WorkerDrain before the label was closed")
        require(all(d.pod_uid != effect.pod.uid for d in self.drains.values()), "I4: two WorkerDrains of one Pod")
        self.serial += 1
        name = f"{effect.pod.name}-{effect.pod.uid}"
        self.drains[name] = Drain(
            name,
            f"d{self.serial}",
            effect.pod.name,
            effect.pod.uid,
            effect.reason,
            effect.rollout,
            self.now,
            group=effect.pod.group,
        )

    def _DrainWorker(self, effect: fx.DrainWorker) -> None:
        process = self._instance(effect.pod, effect.instance_id)
        if process is None or process.sealed:
            return
        require(not process.admitting, "I3: a drain of an admitting worker")
        if process.drain_id != effect.drain.uid:
            process.drain_id, process.tally = effect.drain.uid, Tally(held=process.sessions)
        process.targets = tuple(t.worker_id for t in effect.targets)

    def _RecordDrain(self, effect: fx.RecordDrain) -> None:
        held = self.drains.get(effect.drain.name)
        if held is not None:
            changed = replace(
                held,
                phase=effect.phase,
                tally=effect.tally,
                remaining=effect.remaining,
                progressed_at=effect.progressed_at,
            )
            self.drains[held.name] = changed

    def _SealWorker(self, effect: fx.SealWorker) -> None:
        process = self._instance(effect.pod, effect.instance_id)
        held = self.drains.get(effect.drain.name)
        if process is None or held is None or process.sessions:
            return
        require(not process.admitting, "I3: a seal of an admitting worker")
        process.sealed = True
        self.drains[held.name] = replace(
            held, receipt=effect.instance_id, phase="Sealed", tally=held.tally.largest(process.tally), remaining=0
        )

    def _CancelDrain(self, effect: fx.CancelDrain) -> None:
        process = self._instance(effect.pod, effect.instance_id)
        if process is None:
            return
        process.drain_id, process.targets = "", ()
        self.drains.pop(effect.drain.name, None)

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
        require(
            pod.admitted is None or pod.is_dead or effect.pod.terminated or sealed,
            f"I2: {pod.name} deleted without evidence",
        )
        require(process is None or process.sessions == 0, f"I2: {pod.name} deleted with sessions")
        self._touch(sim, replace(pod, gone_by=self.now + TICK_SECONDS))

    def _DeleteDrain(self, effect: fx.DeleteDrain) -> None:
        require(
            all(s.pod.uid != effect.drain.pod_uid for s in self.pods.values()),
            "a WorkerDrain is kept while its Pod is there",
        )
        self.drains.pop(effect.drain.name, None)

    def _DeleteRevision(self, effect: fx.DeleteRevision) -> None:
        require(
            all(s.pod.revision != effect.revision.short for s in self.pods.values()),
            "a revision is kept while it has Pods",
        )
        self.revisions.pop(effect.revision.short, None)

    def _ReleasePool(self, effect: fx.ReleasePool) -> None:
        require(not self.pods, "the finalizer goes last")
        self.released = True

    def check_revisions(self) -> None:
        """I8: never a fourth serving revision."""
        open_ = {s.pod.revision for s in self.pods.values() if s.pod.is_live and s.pod.admitted}
        require(len(open_) <= 3, f"I8: {len(open_)} serving revisions")

    # -- the world

    def tick(self) -> None:
        """30 seconds pass."""
        self.now += TICK_SECONDS
        for name, sim in list(self.pods.items()):
            if sim.pod.gone_by is not None and self.now >= sim.pod.gone_by:
                del self.pods[name]
        for sim in self.pods.values():
            self._run_pod(sim)
        for sim in self.pods.values():
            self._run_sessions(sim)

    def _run_pod(self, sim: SimPod) -> None:
        pod = sim.pod
        if not pod.is_live:
            return
        if not pod.scheduled:
            used = sum(1 for s in self.pods.values() if s.pod.scheduled and not s.pod.is_dead)
            if used < self.devices:
                self._touch(sim, replace(pod, scheduled=True, unschedulable_since=None))
            elif pod.unschedulable_since is None:
                self._touch(sim, replace(pod, unschedulable_since=self.now))
        elif sim.process is None:
            self.serial += 1
            sim.process = Process(self.serial)
            running = replace(pod, phase="Running", not_ready_since=self.now, started_at=self.now, terminated=False)
            self._touch(sim, running)
        elif pod.ready_since is None and self.now >= sim.unready_until and self._works(pod):
            self._touch(sim, replace(pod, ready_since=self.now, not_ready_since=None))

    def _works(self, pod: Pod) -> bool:
        return self.revisions[pod.revision].content not in self.broken

    def _run_sessions(self, sim: SimPod) -> None:
        process = sim.process
        if process is None or not sim.pod.is_live:
            return
        if process.admitting:
            process.sessions = min(8, process.sessions + self.random.randint(0, 2))
        if process.drain_id and process.sessions:
            processes = [self.pods[t].process for t in process.targets if t in self.pods]
            able = [p for p in processes if p is not None and p.admitting]
            moved = min(process.sessions, 3) if able else 0
            if able:
                able[0].sessions += moved
            ended = 0 if able else 1
            process.sessions -= moved + ended
            tally = process.tally
            process.tally = replace(tally, converted=tally.converted + moved, finished=tally.finished + ended)
        elif process.sessions and self.random.random() < 0.3:
            process.sessions -= 1

    # -- faults

    def crash(self, name: str) -> None:
        """The container restarts: another instance, not Ready, not admitting, without sessions."""
        sim = self.pods[name]
        if sim.process is not None and sim.pod.is_live:
            self.serial += 1
            sim.process = Process(self.serial)
            started = replace(sim.pod, ready_since=None, not_ready_since=self.now, started_at=self.now)
            self._touch(sim, started)

    def unready(self, name: str, ticks: int) -> None:
        """The readiness probe fails for a while, as on a busy machine; the process and its sessions live on."""
        sim = self.pods[name]
        if sim.pod.ready_since is not None:
            sim.unready_until = self.now + ticks * TICK_SECONDS
            self._touch(sim, replace(sim.pod, ready_since=None, not_ready_since=self.now))

    def kill(self, name: str) -> None:
        """Somebody deletes the Pod."""
        sim = self.pods[name]
        if sim.pod.gone_by is None:
            self._touch(sim, replace(sim.pod, gone_by=self.now + TICK_SECONDS))

    def end(self, name: str) -> None:
        """The kubelet gives the Pod up: phase Failed."""
        sim = self.pods[name]
        if sim.pod.is_live:
            sim.process = None
            self._touch(
                sim, replace(sim.pod, phase="Failed", ready_since=None, not_ready_since=self.now, terminated=True)
            )

    def silence(self, name: str, ticks: int) -> None:
        """The worker's answers do not arrive."""
        self.pods[name].silent_until = self.now + ticks * TICK_SECONDS
