"""Draws snapshots: pools as a table; one pool with its groups, its conditions and its drains."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kvroll_cli.snapshot import Snapshot
from kvroll_core.budget import format_bytes
from kvroll_operator.api.status import Condition, GroupStatus, PoolStatus

_CALM = {"Stable", "Updated", "Complete", "Gone"}
_BAD = {"Failed", "Reverting"}
# Conditions that are good news when True; all others are news when True and no news when False.
_POSITIVE = {"Ready", "SpecAccepted", "RolloutComplete", "GatePassed", "CapacityFeasible"}


def overview(snapshots: Sequence[Snapshot]) -> RenderableType:
    """One row a pool, in the words of `kubectl get kvpool`."""
    if not snapshots:
        return Text("no InferencePool of kvroll.dev here")
    table = table_of("POOL", "MODEL", "WEIGHTS", "KV", "READY", "UPDATED", "ROLLOUT", "GROUP", "SESSIONS", "LOST")
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
            _word(rollout.phase),
            rollout.group,
            str(status.sessions.active),
            _lost(rollout.sessions.lost),
        )
    return table


def details(found: Snapshot) -> RenderableType:
    """One pool: what it is, where its rollout is, its groups, its drains, and the conditions that are not as they
    should be.
    """
    parts: list[RenderableType] = [overview([found]), _rollout_line(found.status)]
    if found.status.groups:
        parts += ["", _groups(found.status)]
    if found.drains:
        parts += ["", _drains(found)]
    notable = [c for c in found.status.conditions if _is_notable(c)]
    if notable:
        parts += ["", *(_condition(c) for c in notable)]
    return Group(*parts)


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


def _groups(status: PoolStatus) -> Table:
    precisions = {share.revision: f"{share.weights}/{share.kv_cache}" for share in status.precision_mix}
    table = table_of("GROUP", "PHASE", "REVISION", "PRECISION", "TARGET", "SESSIONS")
    for group in sorted(status.groups, key=lambda g: g.id):
        table.add_row(
            str(group.id),
            _word(group.phase),
            group.revision,
            precisions.get(group.revision, ""),
            _target(group),
            str(group.sessions),
        )
    return table


def _target(group: GroupStatus) -> str:
    return "" if group.target_revision == group.revision else group.target_revision


def _drains(found: Snapshot) -> Table:
    columns = (
        "WORKER",
        "WHY",
        "PHASE",
        "HELD",
        "LEFT",
        "EXACT",
        "CONVERTED",
        "REPLAYED",
        "FINISHED",
        "LOST",
        "SENT",
        "LAST ERROR",
    )
    table = table_of(*columns)
    for drain in found.drains:
        status = drain.status
        counts = (status.held, status.remaining, status.exact, status.converted, status.replayed)
        table.add_row(
            drain.pod,
            drain.reason,
            _word(status.phase),
            *(str(count) for count in counts),
            str(status.finished + status.finished_soon),
            _lost(status.lost),
            format_bytes(status.wire_bytes),
            status.last_error,
        )
    return table


def _is_notable(condition: Condition) -> bool:
    return condition.status != ("True" if condition.type in _POSITIVE else "False") and condition.status != "Unknown"


def _condition(condition: Condition) -> Text:
    line = Text(f"{condition.type}={condition.status} {condition.reason}", style="yellow")
    return line.append(f": {condition.message}" if condition.message else "", style="not bold default")


def table_of(*columns: str) -> Table:
    """A table as kubectl draws it: no lines, counts to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=True, justify="right" if column in _NUMBERS else "left")
    return table


_NUMBERS = {"SESSIONS", "LOST", "HELD", "LEFT", "EXACT", "CONVERTED", "REPLAYED", "FINISHED", "SENT"}


def _word(phase: str) -> Text:
    style = "green" if phase in _CALM else "red" if phase in _BAD else "cyan"
    return Text(phase, style=style)


def _lost(count: int) -> Text:
    return Text(str(count), style="red bold" if count else "")
