"""The wall of a pool, judged by what its workers counted between two looks. Shown only: no decision reads it.

The window is remembered, because counters mean something only as differences; forgetting it costs a verdict until the next one ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvroll_core.wall import Judged, Sample, SeriesError, Told, judge, judge_pool
from kvroll_operator.rollout.facts.observed import Pod, Report

WINDOW_SECONDS = 30.0
"""Between two verdicts, at least: a status that changes more often tells nobody more."""
EVERY_SECONDS = 4.0
"""Between two looks within a window: gauges are their mean."""


@dataclass(frozen=True)
class Watch:
    """The window that goes on: `samples` of each worker's instance since `began`, and the verdict of the one before.

    Times are monotonic seconds of the operator; those inside a sample are of its worker.
    """

    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    began: float | None = None
    judged: Judged | None = None

    def look(self, pods: Iterable[Pod], now: float) -> "Watch":
        """The watch with what the admitted workers report now, and a verdict if the window is over."""
        reports = {p.report.instance_id: p.report for p in pods if p.is_live and p.admitted and p.report}
        reports = {instance: report for instance, report in reports.items() if report.wall}
        samples = {instance: _with(self.samples.get(instance, ()), report) for instance, report in reports.items()}
        if not reports:
            return Watch()
        began = now if self.began is None else self.began
        if now - began < WINDOW_SECONDS:
            return Watch(samples, began, self.judged)
        judged = _judged(samples, reports)
        return Watch({instance: found[-1:] for instance, found in samples.items()}, now, judged)


def _with(found: tuple[Sample, ...], report: Report) -> tuple[Sample, ...]:
    sample = report.wall
    assert sample is not None
    if found and sample.at - found[-1].at < EVERY_SECONDS:
        return found
    return (*found, sample)


def _judged(samples: Mapping[str, tuple[Sample, ...]], reports: Mapping[str, Report]) -> Judged | None:
    """The pool as its mean worker; workers that came within the window are left out, None if all did."""
    workers, rates = [], None
    for instance in sorted(samples):
        told = _told(reports[instance], len(samples))
        try:
            workers.append(judge(samples[instance], told))
        except SeriesError:
            continue
        rates = samples[instance][-1].rates()
    return judge_pool(workers, rates) if workers and rates is not None else None


def _told(report: Report, replicas: int) -> Told:
    return Told(shape=report.facts.shape if report.facts else None, replicas=replicas)
