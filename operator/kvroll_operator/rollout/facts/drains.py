"""What the drains of a pool have counted, and how many moves at a time each may make."""

from functools import reduce

from kvroll_core.plan import RolloutRecord
from kvroll_operator.rollout.facts.observed import TALLY_WORDS, Tally, WorkerDrain
from kvroll_operator.rollout.facts.view import Seen


def of_rollout(view: Seen) -> Tally:
    """What became of the sessions of the rollout in force."""
    record = view.record
    here = [d for d in view.drains_of_plan if d.uid not in record.counted]
    return reduce(Tally.plus, (d.tally for d in here), tally_of(record))


def tally_of(record: RolloutRecord) -> Tally:
    """Of a record that another version may have written."""
    return Tally(**{name: value for name, value in record.tally.items() if name in TALLY_WORDS})


def lost(view: Seen) -> int:
    """Sessions lost in all drains of the pool, whatever they were made for."""
    return view.record.lost + sum(d.tally.lost for d in view.drains if d.uid not in view.record.counted)


def shares(view: Seen) -> dict[str, int]:
    """Moves at a time of each drain under way, by UID: the pool's limit is handed out, the oldest drain first; the others wait."""
    pods = {p.uid: p for p in view.live if p.report is not None and p.report.sessions}
    left = view.desired.policy.parallel
    handed: dict[str, int] = {}
    for drain in sorted(view.drains, key=lambda d: (d.created, d.name)):
        if drain.pod_uid in pods and not drain.is_deleting and not drain.is_over:
            handed[drain.uid] = min(left, drain.policy.per_worker)
            left -= handed[drain.uid]
    return handed


def is_late(view: Seen, drain: WorkerDrain) -> bool:
    """No session has moved or ended for as long as the policy bears."""
    return view.now - max(drain.created, drain.progressed_at or 0.0) > drain.policy.deadline_seconds
