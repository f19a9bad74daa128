"""How a scene looks on a terminal: pure, for any width and height."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kvroll_cli.demo.scene import Scene, StreamRow

_WIDE_COLUMNS = 100
_RIGHT_COLUMNS = 46
_LINES_AROUND = 5
_SUMMARY_COLUMNS = 130
_OLD, _NEW = "yellow", "green"


def draw(scene: Scene, columns: int, lines: int) -> RenderableType:
    """Side by side where there is room, else one above the other; streams that do not fit are counted."""
    head, foot = _head(scene), _foot(scene)
    right = _workers(scene)
    if columns >= _WIDE_COLUMNS:
        room = max(3, lines - _LINES_AROUND)
        left_columns = columns - _RIGHT_COLUMNS - 3
        body = Table.grid(padding=(0, 3, 0, 0))
        body.add_column(width=left_columns, no_wrap=True)
        body.add_column(width=_RIGHT_COLUMNS)
        body.add_row(_streams(scene, left_columns, room), right)
        return Group(head, body, foot)
    room = max(3, lines - _LINES_AROUND - 2 - max(1, len(scene.workers)))
    return Group(head, right, Text(""), _streams(scene, columns, room), foot)


def _head(scene: Scene) -> Text:
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(scene.title or "starting", style="bold")
    head.append(f"  {scene.seconds:.0f} s", style="dim")
    return head


def _foot(scene: Scene) -> Text:
    foot = Text()
    foot.append(f"{scene.num_streaming} streams, {scene.tokens} tokens, {scene.tokens_per_second:.0f}/s")
    for way, count in scene.counts.items():
        foot.append(", ")
        foot.append(f"{way} {count}", style="red bold" if way == "lost" else "green")
    for what, count in (("doubled", scene.duplicated), ("missing", scene.missing)):
        foot.append(f", {what} {count}", style="red bold" if count else "")
    return foot


def _workers(scene: Scene) -> Table:
    """A row a worker: the letters are the sessions that it sends."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("GROUP", no_wrap=True)
    table.add_column("PHASE", no_wrap=True, min_width=8)
    table.add_column("WORKER", no_wrap=True)
    table.add_column("SESSIONS", overflow="fold")
    last = None
    for row in scene.workers:
        is_first, last = row.group != last, row.group
        style = _NEW if row.is_new else _OLD
        table.add_row(
            str(row.group) if is_first else "",
            row.phase if is_first else "",
            Text(row.precision, style=style),
            Text(row.letters, style=style),
        )
    return table


def _streams(scene: Scene, columns: int, room: int) -> RenderableType:
    """A row a client: its letter, who sends, how often that changed, and the end of its text."""
    shown = scene.streams if len(scene.streams) <= room - 1 else scene.streams[: max(1, room - 2)]
    newest = {row.precision for row in scene.workers if row.is_new}
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0), show_header=True)
    table.add_column("", no_wrap=True, width=1)
    table.add_column("WORKER", no_wrap=True, width=13)
    table.add_column("MOVED", no_wrap=True, width=5, justify="right")
    text_columns = max(8, columns - 1 - 13 - 5 - 4)
    table.add_column("TEXT", no_wrap=True, width=text_columns)
    for row in shown:
        style = _NEW if row.precision in newest else _OLD
        table.add_row(
            Text(row.letter, style="bold"),
            Text(_place(row), style=style),
            Text(f"{row.moves}x" if row.moves else "", style="bold"),
            _tail(row.text, text_columns),
        )
    left = len(scene.streams) - len(shown)
    return Group(table, Text(f"and {left} more", style="dim")) if left else table


def _place(row: StreamRow) -> str:
    return f"{row.group} {row.precision}" if row.group >= 0 else ""


def _tail(text: str, columns: int) -> Text:
    """The end of a text, cut by cells, not characters."""
    tail = Text(text[-columns:], no_wrap=True)
    while tail.cell_len > columns:
        tail = tail[1:]
    return tail


def summary(report: dict[str, Any], columns: int) -> Table:
    """The table at the end: a row a change, or a column a change where the rows would be too long."""
    head = ("CHANGE", *(name for name, _ in _cells(None)))
    rows = [(_change(c["from"], c["to"]), *(cell for _, cell in _cells(c))) for c in report["changes"]]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    if columns >= _SUMMARY_COLUMNS:
        for name in head:
            table.add_column(name, no_wrap=True, justify="left" if name == "CHANGE" else "right")
        for row in rows:
            table.add_row(*row)
        return table
    table.add_column(head[0], no_wrap=True)
    for row in rows:
        table.add_column(row[0], justify="right")
    for at, name in enumerate(head[1:], 1):
        table.add_row(name, *(row[at] for row in rows))
    return table


def _cells(change: dict[str, Any] | None) -> list[tuple[str, str | Text]]:
    """The figures of a change by their names; the names alone of None."""
    if change is None:
        change = {"sessions": {}, "tokens": {}, "stall_ms": {}, "roll_seconds": 0.0}
    sessions, tokens, stall = change["sessions"], change["tokens"], change["stall_ms"]
    felt = stall.get("p50") is not None
    return [
        *((way.upper(), str(sessions.get(way, 0))) for way in ("held", "converted", "replayed", "exact", "finished")),
        ("LOST", _zero(sessions.get("lost", 0))),
        ("TOKENS", str(tokens.get("delivered", 0))),
        ("DOUBLED", _zero(tokens.get("duplicated", 0))),
        ("MISSING", _zero(tokens.get("missing", 0))),
        ("STALL p50, max", f"{stall['p50'] / 1000:.1f} s, {stall['max'] / 1000:.1f} s" if felt else "-"),
        ("ROLL", f"{change['roll_seconds']:.0f} s"),
    ]


def _change(source: dict[str, str], target: dict[str, str]) -> str:
    names = {"kvCache": "KV cache", "weights": "weights"}
    changed = [
        f"{name} {source.get(key)} -> {target.get(key)}"
        for key, name in names.items()
        if source.get(key) != target.get(key)
    ]
    return ", ".join(changed)


def _zero(count: int) -> Text:
    return Text(str(count), style="red bold" if count else "green")
