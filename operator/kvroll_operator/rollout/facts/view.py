"""Facts that follow from one observation: who serves, which plan is in force, what each group shall be, whose pods are old."""

from dataclasses import replace
from functools import cached_property

from kvroll_core.plan import OnFailure, Plan, PlanReason, RolloutRecord, Step, Turn
from kvroll_operator.api.meaning import is_same
from kvroll_operator.api.pool import Approval
from kvroll_operator.rollout.facts.desired import Desired
from kvroll_operator.rollout.facts.observed import Observed, Pod, Revision, WorkerDrain

NO_PLAN = Plan("", 0, "", PlanReason.INITIAL, 0.0)
"""The plan of a pool that has none yet: it leads nowhere, knows no group and has begun nothing."""
BROKEN_AFTER_SECONDS = 120
"""A worker that has not been Ready for this long is broken, one that could not be scheduled for this long has no device."""


class Seen:
    """What one look shows, before anything is decided. Immutable but for caches; Pods are found by group and slot, so that a pass over a
    large pool is linear.

    `holder` is the revision that carries the plan in force, the one with the highest seq; `record` what stands there. Where there is none,
    the plan is `NO_PLAN` and the record is empty.
    """

    def __init__(self, desired: Desired, observed: Observed) -> None:
        self.desired = desired
        self.now, self.wall = observed.now, observed.wall
        self.unreadable, self.refusals, self.taken = observed.unreadable, observed.refusals, observed.taken
        self.drains = tuple(sorted(observed.drains, key=lambda d: d.name))
        self._drain_of = {d.pod_uid: d for d in self.drains if not d.is_deleting}
        drained = {d.pod_uid for d in self.drains}
        self.pods = tuple(sorted((_with_evidence(p, drained) for p in observed.pods), key=lambda p: p.name))
        self.live = tuple(p for p in self.pods if p.is_live)
        self.gate_run = observed.gate
        self.revisions = {r.short: r for r in sorted(observed.revisions, key=lambda r: r.short)}
        self._of_group: dict[int, list[Pod]] = {}
        self._live_of_group: dict[int, list[Pod]] = {}
        self._of_slot: dict[tuple[int, int], list[Pod]] = {}
        for pod in self.pods:
            self._of_group.setdefault(pod.group, []).append(pod)
            if pod.is_live:
                self._live_of_group.setdefault(pod.group, []).append(pod)
                self._of_slot.setdefault(pod.slot, []).append(pod)
        self._serves = {p.uid: self._takes_sessions(p) for p in self.live}
        self._keepers: dict[tuple[tuple[int, int], str], Pod | None] = {}
        self._serving = [p for p in self.live if self._serves[p.uid]]
        self.holder: Revision | None = max(
            (r for r in self.revisions.values() if r.record.plan),
            key=lambda r: r.record.plan.seq if r.record.plan else 0,
            default=None,
        )
        self.record = self.holder.record if self.holder else RolloutRecord()
        self.plan = self.record.plan or NO_PLAN

    def pods_of(self, group: int) -> list[Pod]:
        """The Pods of a group, by name."""
        return self._of_group.get(group, [])

    def live_of(self, group: int) -> list[Pod]:
        """Those of them that are neither ended nor being deleted."""
        return self._live_of_group.get(group, [])

    @property
    def is_stopped(self) -> bool:
        """Where a decision may stand in what cannot be read, none is taken, and nothing is done. Deleting the pool needs none."""
        return not self.desired.deleting and any(u.stops for u in self.unreadable)

    # -- plans

    @property
    def is_planned(self) -> bool:
        """A plan is in force, carried out or not."""
        return self.holder is not None

    @cached_property
    def is_complete(self) -> bool:
        """The plan in force was carried out."""
        return self.record.is_complete

    @cached_property
    def turns(self) -> dict[int, Turn]:
        """Groups whose change is under way."""
        return {} if self.is_complete else {t.group: t for t in self.record.turn}

    @cached_property
    def stable(self) -> str:
        """The last good revision, empty if none."""
        best = max(self.revisions.values(), key=lambda r: r.record.stable, default=None)
        return best.short if best and best.record.stable else ""

    @cached_property
    def target(self) -> Revision | None:
        """The revision that the spec names, found by content."""
        content = self.desired.content
        if not content:
            return None
        matches = [r for r in self.revisions.values() if is_same(r.content, content, empties=r.has_empties)]
        return min(matches, key=lambda r: (r.content != content, not r.has_empties, r.number, r.name), default=None)

    @property
    def is_rolled_back(self) -> bool:
        """The pool is back at the last good revision because the spec's failed, and the spec still names that."""
        target = self.target
        return bool(self.is_complete and target and target.record.pin and self.plan.to != target.short)

    @property
    def is_update(self) -> bool:
        """The plan in force leads to a new revision and is under way."""
        return self.plan.reason is PlanReason.UPDATE and not self.plan.ended and not self.is_complete

    @property
    def is_unapproved(self) -> bool:
        """The spec wants such plans approved, and nobody has approved this one."""
        return self.is_update and self.desired.approval is Approval.PLAN and self.record.approved != self.plan.id

    @property
    def is_held_back(self) -> bool:
        """The new revision was let into some groups only: the pool may not become all new because others are scaled away."""
        return self.is_update and (self.desired.partition > 0 or self.is_paused or self.is_unapproved)

    @property
    def is_paused(self) -> bool:
        """By the spec or by a recorded request."""
        return self.desired.paused or self.record.hold

    @property
    def effective_target(self) -> Revision | None:
        """Where the pool shall go now: the spec's revision, the last good one if that failed, or None: hold."""
        target = self.target
        if target is None or target.record.pin is None:
            return target
        return self.revisions.get(self.stable) if target.record.pin.then is OnFailure.ROLLBACK else None

    @property
    def is_queued(self) -> bool:
        """A newer spec waits for the group in turn, which has closed an old worker."""
        target, plan = self.effective_target, self.plan
        if target is None or self.is_complete or plan.ended or target.short in (plan.to, self.stable):
            return False
        return plan.reason in (PlanReason.UPDATE, PlanReason.MAKE_ROOM) and any(
            self.is_committed(t) for t in self.turns.values()
        )

    @cached_property
    def drains_of_plan(self) -> tuple[WorkerDrain, ...]:
        """The WorkerDrains of the plan in force."""
        return tuple(d for d in self.drains if d.rollout and d.rollout == self.plan.id)

    # -- groups

    def want(self, group: int) -> str:
        """The revision that a group's slots shall have."""
        if not self.is_planned:
            return ""
        if self.is_complete or group in self.record.done or group in self.turns:
            return self.plan.to
        return self.base(group) or self.plan.to

    def base(self, group: int) -> str:
        """What a group was before the plan: as recorded, or the last good revision for one added since; empty if there is neither."""
        base = self.plan.base.get(group, "")
        # A revision whose object somebody deleted cannot be made again, but the workers that run it are what the group is.
        is_known = base in self.revisions or any(p.revision == base for p in self.live_of(group))
        return base if is_known else self.stable

    def slots(self, group: int) -> list[tuple[int, int]]:
        """(group, index) of each worker of a group."""
        return [(group, index) for index in range(self.desired.group_size)]

    def keeper(self, slot: tuple[int, int], revision: str) -> Pod | None:
        """The best live pod of that slot and revision; one that is sealed or asked to leave never is."""
        asked = (slot, revision)
        if asked not in self._keepers:
            fit = [p for p in self._of_slot.get(slot, ()) if p.revision == revision and not self._goes(p)]
            self._keepers[asked] = max(
                fit,
                key=lambda p: (self.serves(p), p.admitted is True, not p.is_closed, p.scheduled, -p.created, p.name),
                default=None,
            )
        return self._keepers[asked]

    def old_objects(self, group: int) -> list[Pod]:
        """Pods of a group of another revision than the plan's; those whose deletion is overdue (a dead node's) are ignored."""
        return [p for p in self.pods_of(group) if p.revision != self.plan.to and not self.is_overdue(p)]

    def is_overdue(self, pod: Pod) -> bool:
        """Terminating beyond its own deletionTimestamp."""
        return pod.gone_by is not None and self.now > pod.gone_by

    @cached_property
    def mixed(self) -> frozenset[int]:
        """Groups with live pods of two revisions."""
        return frozenset(g for g, pods in self._live_of_group.items() if len({p.revision for p in pods}) > 1)

    def is_group_settled(self, group: int, revision: str) -> bool:
        """Every slot has a settled worker of that revision."""
        keepers = [self.keeper(slot, revision) for slot in self.slots(group)]
        return all(k is not None and self.is_settled(k) for k in keepers)

    def is_group_broken(self, group: int) -> bool:
        """A live worker of the revision it had before has not been Ready for too long."""
        base = self.base(group)
        return any(self.is_broken(p) for p in self.live_of(group) if p.revision == base)

    def is_committed(self, turn: Turn) -> bool:
        """An old worker of the group in turn was closed, so its change cannot be cancelled for free any more."""
        if any(d.group == turn.group and not d.is_deleting for d in self.drains_of_plan):
            return True
        old = [p for p in self.old_objects(turn.group) if p.is_live]
        return any(p.is_closed for p in old) or (turn.step is not Step.SURGE and not old)

    # -- pods

    def drain_of(self, pod: Pod) -> WorkerDrain | None:
        """The WorkerDrain of exactly this Pod."""
        return self._drain_of.get(pod.uid)

    def is_sealed(self, pod: Pod) -> bool:
        """It refuses sessions for good."""
        drain = self.drain_of(pod)
        return bool(drain and drain.receipt) or bool(pod.report and pod.report.sealed)

    def is_cancelled(self, pod: Pod) -> bool:
        """A user cancelled its drain, and the spec has not changed since: the worker takes sessions again until it does."""
        return self.record.cancelled.get(pod.uid) == self.desired.generation and not self.desired.deleting

    def is_asked_to_leave(self, pod: Pod) -> bool:
        """A user wants this worker drained. In its group's turn all old ones go anyway, and the new ones wait until the turn is over."""
        return pod.uid in self.record.leaving and pod.group not in self.turns

    def _goes(self, pod: Pod) -> bool:
        return self.is_sealed(pod) or self.is_asked_to_leave(pod)

    def serves(self, pod: Pod) -> bool:
        """It takes new sessions now. A worker of which nothing is known does not serve (and is not gone)."""
        return self._serves.get(pod.uid, False)

    def _takes_sessions(self, pod: Pod) -> bool:
        report = pod.report
        return bool(
            pod.is_live
            and pod.phase == "Running"
            and pod.admitted
            and pod.ready_since is not None
            and not pod.terminated
            and report
            and report.ready
            and report.admitting
            and not self.is_sealed(pod)
        )

    def is_settled(self, pod: Pod) -> bool:
        """It has served long enough to count on it: since it was Ready, and since it was let in, which may be a gate's time later."""
        if not self.serves(pod) or pod.ready_since is None:
            return False
        return self.now - max(pod.ready_since, pod.admitted_at or 0.0) >= self.desired.min_ready_seconds

    def may_hold_sessions(self, pod: Pod) -> bool:
        """It was admitted, and its container has not started anew since it was last Ready: silence and slow probes empty no worker."""
        if pod.admitted is None or not pod.is_live or pod.terminated or pod.started_at is None:
            return False
        return pod.not_ready_since is None or pod.started_at < pod.not_ready_since

    def was_ready(self, pod: Pod) -> bool:
        """Its container has been Ready, so that it may have been let in, whatever its labels say now."""
        if pod.ready_since is not None:
            return True
        return pod.started_at is not None and pod.not_ready_since is not None and pod.not_ready_since > pod.started_at

    def is_broken(self, pod: Pod) -> bool:
        """Not Ready for too long, and holding nothing."""
        since = pod.created if pod.not_ready_since is None else pod.not_ready_since
        late = pod.ready_since is None and self.now - since >= BROKEN_AFTER_SECONDS
        return pod.is_live and late and not self.may_hold_sessions(pod)

    def is_unschedulable(self, pod: Pod) -> bool:
        """No node has taken it for too long."""
        return (
            pod.is_live
            and pod.unschedulable_since is not None
            and self.now - pod.unschedulable_since >= BROKEN_AFTER_SECONDS
        )

    def serving(self) -> list[Pod]:
        """Workers that serve."""
        return self._serving

    def sessions(self, group: int) -> int:
        """Sessions that the reachable workers of a group hold."""
        return sum(p.report.sessions for p in self.pods_of(group) if p.report)


class View(Seen):
    """What was seen, with the groups that the pool shall have: ids, ascending. Which those are is a decision."""

    def __init__(self, seen: Seen, groups: tuple[int, ...]) -> None:
        vars(self).update(vars(seen))  # what was derived stays derived
        self.groups = groups
        self.group_ids = frozenset(groups)

    @cached_property
    def num_begun(self) -> int:
        """Groups that the plan has changed, or is changing."""
        return len({*self.record.done, *self.turns} & self.group_ids)


class Rolling(View):
    """A pool with a plan in force, which `holder` carries. Whoever takes one need not ask whether there is a plan."""

    holder: Revision

    def __init__(self, seen: Seen, groups: tuple[int, ...], holder: Revision) -> None:
        super().__init__(seen, groups)
        self.holder = holder


def _with_evidence(pod: Pod, drained: set[str]) -> Pod:
    """A Pod whose admitted label is gone is closed, not new, if anything else says that it was let in: what it holds must be drained."""
    report = pod.report
    is_in_use = report is not None and (
        report.admitting or report.sessions > 0 or report.pending > 0 or bool(report.drain_id)
    )
    if pod.admitted is None and (is_in_use or pod.admitted_at is not None or pod.uid in drained):
        return replace(pod, admitted=False, is_mislabelled=True)
    return pod
