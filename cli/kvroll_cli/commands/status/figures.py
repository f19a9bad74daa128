"""Draws a rollout's progress and its plan beside what it came to."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kvroll_cli.kube.progress import ProgressFigure, RollProgress
from kvroll_cli.table import table_of
from kvroll_core.budget import format_bytes

_BAR_COLUMNS = 30


def progress_line(progress: RollProgress) -> RenderableType:
    """The bar, groups, time so far and time left."""
    line = Table.grid(padding=(0, 1))
    line.add_column(width=_BAR_COLUMNS)
    line.add_column()
    line.add_row(ProgressBar(total=1.0, completed=progress.fraction, width=_BAR_COLUMNS), _words(progress))
    return line


def _words(progress: RollProgress) -> Text:
    parts = [f"{progress.fraction:.0%}", f"{progress.groups_done} of {progress.groups_total} groups"]
    if progress.elapsed_seconds is not None:
        parts.append(duration(progress.elapsed_seconds))
    text = Text(", ".join(parts))
    if progress.left_seconds is not None and progress.basis is not None:
        text.append(f", about {duration(progress.left_seconds)} left ({progress.basis})")
    elif progress.is_late:
        text.append(", later than planned", style="yellow")
    return text


def figures_table(figures: Sequence[ProgressFigure]) -> Table:
    """One row a figure: planned, actual, and actual over planned."""
    table = table_of("", "PLANNED", "ACTUAL", "RATIO", "")
    for figure in figures:
        ratio = "-" if figure.ratio is None else f"{figure.ratio:.2f} x"
        so_far = "" if figure.is_final or figure.actual is None else "so far"
        table.add_row(figure.name, amount(figure.planned, figure.unit), _actual(figure), ratio, so_far)
    return table


def _actual(figure: ProgressFigure) -> str:
    if figure.unit == "seconds" and figure.actual is None and not figure.is_final:
        return "not over"
    return amount(figure.actual, figure.unit)


def amount(count: int | None, unit: str) -> str:
    """A figure for people; a dash where there is none."""
    if count is None:
        return "-"
    return {"bytes": format_bytes, "seconds": duration}.get(unit, str)(count)


def duration(seconds: int) -> str:
    """Seconds for people: `2 min 10 s`."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
