"""Draws snapshots: pools as a table; one pool with its rollout, its groups, its drains, its verdicts and its conditions."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kvroll_cli.commands.status.figures import duration, figures_table, progress_line
from kvroll_cli.kube.judgement import CALM_GATE, CALM_WALL, GateNow, WallNow
from kvroll_cli.kube.progress import RollProgress, drains_by_group, progress_of, silent_seconds
from kvroll_cli.kube.snapshot import DrainNow, Snapshot
from kvroll_cli.table import lost, table_of, word
from kvroll_core.budget import format_bytes
from kvroll_operator.api.status import Condition, GroupStatus, PoolStatus

# Conditions that are good news when True; all others are news when True and no news when False.
POSITIVE = frozenset({"Ready", "SpecAccepted", "RolloutComplete", "GatePassed", "CapacityFeasible"})
SILENT_TOO_LONG_SECONDS = 60
"""A drain in which no session has moved or ended for this long is shown in yellow: its sessions may be long, or it hangs."""


def overview(snapshots: Sequence[Snapshot]) -> RenderableType:
    """One row a pool, in the words of `kubectl get kvpool`."""
    if not snapshots:
        return Text("no InferencePool of kvroll.dev here")
    columns = ("POOL", "MODEL", "WEIGHTS", "KV", "READY", "UPDATED", "ROLLOUT", "GROUP", "SESSIONS", "LOST")
    table = table_of(*columns, "GATE", "WALL")
    for found in snapshots:
        status, precision = found.status, found.spec["precision"]
        rollout = status.rollout
        table.add_row(
            found.title,
            found.spec["model"]["name"],
            precision["weights"],
            precision["kvCache"],
            status.ready,
            status.updated,
            word(rollout.phase),
            rollout.group,
            str(status.sessions.active),
            lost(rollout.sessions.lost),
            word(found.gate.verdict),
            Text(found.wall.verdict),
        )
    return table


def details(found: Snapshot, now: datetime | None) -> RenderableType:
    """One pool: what it is, where its rollout is, its plan beside what it came to, its groups, its drains, its verdicts, and the
    conditions that are not as they should be. Without `now` nothing is told that passes by itself, so that a log tells changes alone.
    """
    progress = progress_of(found, now)
    parts: list[RenderableType] = [overview([found]), "", _rollout_line(found.status)]
    if progress is not None:
        parts += _progress(found, progress)
    if found.status.groups:
        parts += ["", _groups(found, now)]
    if found.drains:
        parts += ["", _drains(found)]
    verdicts = [line for line in (_gate(found.gate), _wall(found.wall)) if line is not None]
    if verdicts:
        parts += ["", *verdicts]
    notable = [c for c in found.status.conditions if is_notable(c)]
    if notable:
        parts += ["", *(_condition(c) for c in notable)]
    return Group(*parts)


def is_notable(condition: Condition) -> bool:
    """Whether the condition is not as it should be, or tells that something goes on."""
    return condition.status != ("True" if condition.type in POSITIVE else "False") and condition.status != "Unknown"


def _rollout_line(status: PoolStatus) -> Text:
    rollout, sessions = status.rollout, status.rollout.sessions
    if not rollout.id:
        return Text("no rollout yet", style="dim")
    line = Text(f"rollout {rollout.id} {rollout.reason} {rollout.from_ or '-'} -> {rollout.to}: ")
    line.append(
        f"held {sessions.held}, exact {sessions.exact}, converted {sessions.converted}, replayed {sessions.replayed}, "
        f"finished {sessions.finished + sessions.finished_soon}, lost {sessions.lost}; {format_bytes(sessions.wire_bytes)} moved"
    )
    if status.blocked:
        line.append(f"; waits for {status.blocked}", style="yellow")
    if rollout.message:
        line.append(f"\n{rollout.message}", style="dim")
    return line


def _progress(found: Snapshot, progress: RollProgress) -> list[RenderableType]:
    parts: list[RenderableType] = [progress_line(progress)]
    if found.status.plan.cost is not None:
        parts += ["", figures_table(progress.figures)]
    return parts


def _groups(found: Snapshot, now: datetime | None) -> Table:
    precisions = {share.revision: f"{share.weights}/{share.kv_cache}" for share in found.status.precision_mix}
    drains = drains_by_group(found)
    table = table_of("GROUP", "PHASE", "REVISION", "PRECISION", "TARGET", "SESSIONS", "MOVED", "LEFT", "SILENT")
    for group in sorted(found.status.groups, key=lambda g: g.id):
        own = drains.get(group.id, ())
        table.add_row(
            str(group.id),
            word(group.phase),
            group.revision,
            precisions.get(group.revision, ""),
            _target(group),
            str(group.sessions),
            *_moving(own, now),
        )
    return table


def _moving(drains: tuple[DrainNow, ...], now: datetime | None) -> tuple[str, str, Text]:
    """Of a group's drains: sessions moved, sessions still there, and how long nothing has happened."""
    if not drains:
        return "", "", Text()
    moved = sum(d.status.exact + d.status.converted + d.status.replayed for d in drains)
    left = sum(d.status.remaining for d in drains if d.status.phase == "Draining")
    silent = max((s for d in drains if (s := silent_seconds(d, now)) is not None), default=None)
    style = "yellow" if silent is not None and silent >= SILENT_TOO_LONG_SECONDS else ""
    return str(moved), str(left), Text("" if silent is None else duration(silent), style=style)


def _target(group: GroupStatus) -> str:
    return "" if group.target_revision == group.revision else group.target_revision


def _drains(found: Snapshot) -> Table:
    counts = ("HELD", "LEFT", "EXACT", "CONVERTED", "REPLAYED", "FINISHED", "LOST", "SENT")
    table = table_of("WORKER", "WHY", "PHASE", *counts, "LAST ERROR")
    for drain in found.drains:
        status = drain.status
        table.add_row(
            drain.pod,
            drain.reason,
            word(status.phase),
            *(str(n) for n in (status.held, status.remaining, status.exact, status.converted, status.replayed)),
            str(status.finished + status.finished_soon),
            lost(status.lost),
            format_bytes(status.wire_bytes),
            status.last_error,
        )
    return table


def _gate(gate: GateNow) -> RenderableType | None:
    if gate.verdict in CALM_GATE and not gate.metrics:
        return None
    line = Text("gate ").append(word(gate.verdict))
    line.append(f" at {gate.point}" if gate.point else "")
    line.append(f", {gate.samples} samples" if gate.samples else "")
    line.append(f": {gate.reason}" if gate.reason else "")
    if not gate.metrics:
        return line
    table = table_of("METRIC", "VALUE", "BAR", "VERDICT")
    for metric in gate.metrics:
        value = "-" if metric.value is None else f"{metric.value:.4g}"
        table.add_row(metric.name, value, metric.bar, word(metric.verdict))
    return Group(line, table)


def _wall(wall: WallNow) -> RenderableType | None:
    if wall.verdict in CALM_WALL and not wall.advice:
        return None
    line = Text("wall ").append(word(wall.verdict))
    line.append(f" ({wall.basis.lower()})" if wall.basis else "")
    line.append(f": {wall.message}" if wall.message else "")
    return Group(line, *(Text(f"  {advice.words}") for advice in wall.advice))


def _condition(condition: Condition) -> Text:
    line = Text(f"{condition.type}={condition.status} {condition.reason}", style="yellow")
    return line.append(f": {condition.message}" if condition.message else "", style="not bold default")
