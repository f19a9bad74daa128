"""The journals of drains outlive their WorkerDrains: what they counted is added to the record before they go."""

from dataclasses import replace
from functools import reduce

from kvroll_operator.rollout.decide.writes import WriteRecord
from kvroll_operator.rollout.facts.drains import tally_of
from kvroll_operator.rollout.facts.observed import Report, Tally, WorkerDrain
from kvroll_operator.rollout.facts.view import Rolling


def count(view: Rolling) -> WriteRecord | None:
    """Adds the numbers of WorkerDrains that are being deleted to the record, each once, and notes those that a user cancelled by it."""
    record = view.record
    gone = [d for d in view.drains if d.is_deleting and d.uid not in record.counted]
    if not gone:
        return None
    live = {p.uid: p.report for p in view.live}
    cancelled = {d.pod_uid for d in gone if not d.is_over and d.pod_uid in live}
    present = {d.uid for d in view.drains}
    tallies = [(d, _newest(d, live.get(d.pod_uid))) for d in gone]
    return WriteRecord(
        view.holder,
        replace(
            record,
            tally=_words(reduce(Tally.plus, (t for d, t in tallies if d in view.drains_of_plan), tally_of(record))),
            lost=record.lost + sum(t.lost for _, t in tallies),
            counted=(record.counted & present) | {d.uid for d in gone},
            cancelled={
                **{uid: at for uid, at in record.cancelled.items() if uid in live},
                **dict.fromkeys(cancelled, view.desired.generation),
            },
            leaving=record.leaving - cancelled,
        ),
    )


def _newest(drain: WorkerDrain, report: Report | None) -> Tally:
    """What the worker says now, if it still drains for that WorkerDrain."""
    return drain.tally.largest(report.tally) if report is not None and report.drain_id == drain.uid else drain.tally


def _words(tally: Tally) -> dict[str, int]:
    return {name: value for name, value in vars(tally).items() if value}
