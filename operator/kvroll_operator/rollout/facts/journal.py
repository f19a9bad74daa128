"""The journals of drains outlive their WorkerDrains: what they counted is added to the record before they go."""

from dataclasses import fields, replace
from functools import reduce

from kvroll_core.plan import Record
from kvroll_operator.rollout.act.effects import Effect, ReleaseDrain, WriteRecord
from kvroll_operator.rollout.facts.observed import Drain, Report, Tally
from kvroll_operator.rollout.facts.view import View


def count(view: View) -> WriteRecord | None:
    """Adds the numbers of WorkerDrains that are being deleted to the record, each once, and notes those that a user cancelled by it."""
    holder, record = view.holder, view.record
    if holder is None:
        return None
    gone = [d for d in view.drains if d.is_deleting and d.uid not in record.counted]
    if not gone:
        return None
    live = {p.uid: p.report for p in view.live}
    cancelled = {d.pod_uid for d in gone if not d.is_over and d.pod_uid in live}
    present = {d.uid for d in view.drains}
    tallies = [(d, _newest(d, live.get(d.pod_uid))) for d in gone]
    return WriteRecord(
        holder,
        replace(
            record,
            tally=_words(
                reduce(Tally.plus, (t for d, t in tallies if view.plan and d.rollout == view.plan.id), _tally(record))
            ),
            lost=record.lost + sum(t.lost for _, t in tallies),
            counted=(record.counted & present) | {d.uid for d in gone},
            cancelled={
                **{uid: at for uid, at in record.cancelled.items() if uid in live},
                **dict.fromkeys(cancelled, view.desired.generation),
            },
            leaving=record.leaving - cancelled,
        ),
    )


def _newest(drain: Drain, report: Report | None) -> Tally:
    """What the worker says now, if it still drains for that WorkerDrain."""
    return drain.tally.largest(report.tally) if report is not None and report.drain_id == drain.uid else drain.tally


def _words(tally: Tally) -> dict[str, int]:
    return {name: value for name, value in vars(tally).items() if value}


def release(view: View) -> list[Effect]:
    """Lets WorkerDrains go that are counted. With the pool all go: its deletion counts no more, and nobody would be left to do it."""
    reports = {p.uid: p.report for p in view.live}
    effects: list[Effect] = []
    for drain in view.drains:
        is_counted = view.holder is None or drain.uid in view.record.counted
        if drain.has_finalizer and (
            (view.desired.deleting and not reports) or (drain.is_deleting and (is_counted or view.desired.deleting))
        ):
            report = reports.get(drain.pod_uid)
            goes_on = report is not None and report.drain_id == drain.uid and not drain.is_over
            effects.append(
                ReleaseDrain(drain, report.instance_id, report.address) if report and goes_on else ReleaseDrain(drain)
            )
    return effects


def of_rollout(view: View) -> Tally:
    """What became of the sessions of the rollout in force."""
    plan, record = view.plan, view.record
    here = [d for d in view.drains if plan is not None and d.rollout == plan.id and d.uid not in record.counted]
    return reduce(Tally.plus, (d.tally for d in here), _tally(record))


def _tally(record: Record) -> Tally:
    """Of a record that another version may have written."""
    names = {f.name for f in fields(Tally)}
    return Tally(**{name: value for name, value in record.tally.items() if name in names})


def lost(view: View) -> int:
    """Sessions lost in all drains of the pool, whatever they were made for."""
    return view.record.lost + sum(d.tally.lost for d in view.drains if d.uid not in view.record.counted)
