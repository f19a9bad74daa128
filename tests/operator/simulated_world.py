"""What runs by itself in the simulated cluster: Pods, processes, sessions, time and faults. A tick is 30 seconds."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kvroll_operator.rollout.facts.desired import Desired
from kvroll_operator.rollout.facts.observed import (
    Observed,
    Pod,
    Refusal,
    Report,
    Revision,
    Tally,
    Unreadable,
    WorkerDrain,
)
from tests.operator.simulated_facts import facts
from tests.operator.simulated_wall import figures

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
    hung_until: float = 0.0  # its sessions neither move nor end
    shown: tuple[Pod, tuple[object, ...], Pod] | None = None  # what `World.observe` made of the Pod and its process
    is_lost: bool = False  # its node does not answer: it is never gone as an object


class World:
    """One pool's world. `broken` are the contents whose workers never get Ready."""

    def __init__(self, desired: Desired, *, devices: int, seed: int, broken: Iterable[str] = ()) -> None:
        self.desired = desired
        self.devices = devices
        self.random = random.Random(seed)
        self.broken = set(broken)
        self.now = 1_000_000.0
        self.pods: dict[str, SimPod] = {}
        self.revisions: dict[str, Revision] = {}
        self.drains: dict[str, WorkerDrain] = {}
        self.released = False
        self.serial = 0
        self.seen = Observed(self.now)
        self.skew_seconds = 0.0
        self.has_figures = True  # workers count for a wall verdict, which decides nothing
        self.refuses_until = 0.0
        self.refused: dict[str, str] = {}  # reason by revision content
        self.unreadable_until = 0.0
        self.closed_in_pass: set[str] = set()

    # -- what the operator sees

    def observe(self) -> Observed:
        pods = tuple(self._shown(sim) for sim in self.pods.values())
        now = self.now + self.random.uniform(-self.skew_seconds, self.skew_seconds)
        refusals = tuple(Refusal("Pod", why, why, content) for content, why in sorted(self.refused.items()))
        bad = (Unreadable("ControllerRevision", "scribbled", stops=True),) if self.now < self.unreadable_until else ()
        return Observed(
            now, pods, tuple(self.revisions.values()), tuple(self.drains.values()), unreadable=bad, refusals=refusals
        )

    def _shown(self, sim: SimPod) -> Pod:
        """The Pod with its worker's report, made anew only where either has changed."""
        process = sim.process
        if process is None or sim.is_lost or self.now < sim.silent_until or sim.pod.ready_since is None:
            return sim.pod
        told = (*vars(process).values(), self.now if self.has_figures else 0.0)
        if sim.shown is None or sim.shown[0] is not sim.pod or sim.shown[1] != told:
            sim.shown = (sim.pod, told, replace(sim.pod, report=self._report(sim, process)))
        return sim.shown[2]

    def _report(self, sim: SimPod, process: Process) -> Report:
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
            facts=facts(self.revisions[sim.pod.revision].content, process.sessions),
            wall=figures(self.now, process.sessions) if self.has_figures else None,
        )

    def _touch(self, sim: SimPod, pod: Pod) -> None:
        self.serial += 1
        sim.pod = replace(pod, resource_version=str(self.serial))

    def tick(self) -> None:
        """30 seconds pass."""
        self.now += TICK_SECONDS
        for name, sim in list(self.pods.items()):
            if sim.pod.gone_by is not None and self.now >= sim.pod.gone_by and not sim.is_lost:
                del self.pods[name]
        for sim in self.pods.values():
            self._run_pod(sim)
        for sim in self.pods.values():
            self._run_sessions(sim)

    def _run_pod(self, sim: SimPod) -> None:
        pod = sim.pod
        if not pod.is_live or sim.is_lost:
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
        if process is None or not sim.pod.is_live or sim.is_lost or self.now < sim.hung_until:
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

    def lose_node(self, name: str) -> None:
        """Its node goes silent: not Ready, no answers, and evicted after a while that never ends."""
        sim = self.pods[name]
        if sim.pod.scheduled and sim.pod.gone_by is None:
            sim.is_lost = True
            away = replace(sim.pod, ready_since=None, not_ready_since=self.now, gone_by=self.now + 10 * TICK_SECONDS)
            self._touch(sim, away)

    def hang(self, name: str, ticks: int) -> None:
        """Its sessions neither move nor end for a while."""
        self.pods[name].hung_until = self.now + ticks * TICK_SECONDS

    def strip(self, name: str) -> None:
        """Somebody removes the admitted label."""
        sim = self.pods[name]
        self._touch(sim, replace(sim.pod, admitted=None))

    def relabel(self, name: str) -> None:
        """Somebody changes labels that the name repeats."""
        sim = self.pods[name]
        self._touch(sim, replace(sim.pod, is_mislabelled=True))

    def unprotect(self, name: str) -> None:
        """Somebody takes the PodDisruptionBudget's label away."""
        sim = self.pods[name]
        self._touch(sim, replace(sim.pod, protected=False))

    def calm(self) -> None:
        """The faults stop, and nodes come back."""
        self.skew_seconds = self.refuses_until = self.unreadable_until = 0.0
        self.refused.clear()
        for sim in self.pods.values():
            sim.hung_until = min(sim.hung_until, self.now)
            sim.is_lost = False
        for short, revision in self.revisions.items():
            self.revisions[short] = replace(revision, record=replace(revision.record, hold=False))

    def silence(self, name: str, ticks: int) -> None:
        """The worker's answers do not arrive."""
        self.pods[name].silent_until = self.now + ticks * TICK_SECONDS
