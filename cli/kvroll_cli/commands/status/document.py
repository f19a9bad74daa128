"""A snapshot for programs: the API's own words, and beside them what has to be reckoned from them."""

from datetime import datetime
from typing import Any

from kvroll_cli.kube.progress import ProgressFigure, RollProgress, progress_of, silent_seconds
from kvroll_cli.kube.snapshot import DrainNow, Snapshot


def status_document(found: Snapshot, now: datetime) -> dict[str, Any]:
    """namespace, name, spec, status and drains as the API server has them; `progress` (null of a pool without a plan) is ours.
    Times are seconds, fractions 0 to 1.
    """
    progress = progress_of(found, now)
    verdicts = {name: found.reported[name] for name in ("gate", "wall") if name in found.reported}
    return {
        "namespace": found.namespace,
        "name": found.name,
        "spec": found.spec,
        "status": {**found.status.model_dump(by_alias=True), **verdicts},
        "progress": None if progress is None else _progress(progress),
        "drains": [_drain(drain, now) for drain in found.drains],
    }


def _progress(progress: RollProgress) -> dict[str, Any]:
    return {
        "groupsDone": progress.groups_done,
        "groupsTotal": progress.groups_total,
        "fraction": round(progress.fraction, 4),
        "elapsedSeconds": progress.elapsed_seconds,
        "leftSeconds": progress.left_seconds,
        "leftBasis": progress.basis,
        "isLate": progress.is_late,
        "figures": [_figure(figure) for figure in progress.figures],
    }


def _figure(figure: ProgressFigure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "unit": figure.unit,
        "planned": figure.planned,
        "actual": figure.actual,
        "ratio": None if figure.ratio is None else round(figure.ratio, 4),
        "isFinal": figure.is_final,
    }


def _drain(drain: DrainNow, now: datetime) -> dict[str, Any]:
    return {
        "pod": drain.pod,
        "group": drain.group,
        "rollout": drain.rollout,
        "reason": drain.reason,
        "silentSeconds": silent_seconds(drain, now),
        "status": drain.status.model_dump(by_alias=True),
    }
