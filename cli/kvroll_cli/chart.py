"""Memory over concurrency as a chart: braille in a terminal, or an SVG file."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kvroll_core.budget import Point

_GIB = 2**30
_WIDTH, _HEIGHT = 72, 18
_MARGIN = 28  # of the axis and its labels, and for a long line of the legend
_COLOURS = ("green", "cyan", "yellow", "magenta", "blue", "white")


@dataclass(frozen=True)
class Curve:
    """One precision's memory over its sessions, and the last concurrency under the ceiling."""

    name: str
    points: Sequence[Point]
    max_sessions: int | None

    @property
    def label(self) -> str:
        """Its name, and where it hits the ceiling."""
        return self.name if self.max_sessions is None else f"{self.name}: {self.max_sessions} sessions"


def draw(curves: Sequence[Curve], ceiling_bytes: int | None, *, colours: bool) -> str:
    """The chart as text: a curve each, the ceiling as a line across, a cross where a curve meets it."""
    # Imported here: `--help` and the other verbs need no chart.
    import plotille

    figure = plotille.Figure()
    figure.width, figure.height = _WIDTH, _HEIGHT
    figure.color_mode, figure.with_colors = "names", colours
    figure.x_label, figure.y_label = "sessions", "GiB"
    top = max(max(p.total_bytes for p in curve.points) for curve in curves)
    top = max(top, ceiling_bytes or 0) / _GIB * 1.05
    most = max(curve.points[-1].sessions for curve in curves)
    figure.set_x_limits(0, most)
    figure.set_y_limits(0, top)
    # The library hands in both bounds of a tick's cell.
    figure.x_ticks_fkt = lambda low, _high: f"{low:.0f}"
    figure.y_ticks_fkt = lambda low, _high: f"{low:.1f}"
    for curve, colour in zip(curves, _COLOURS * len(curves), strict=False):
        xs, ys = [p.sessions for p in curve.points], [p.total_bytes / _GIB for p in curve.points]
        figure.plot(xs, ys, lc=colour, label=curve.label)
        if ceiling_bytes is not None and curve.max_sessions and curve.max_sessions <= most:
            figure.text([curve.max_sessions], [ceiling_bytes / _GIB], ["x"], lc=colour)
    if ceiling_bytes is not None:
        figure.axhline(ceiling_bytes / _GIB / top, lc="red")
    text: str = figure.show(legend=True)
    if ceiling_bytes is not None:
        text += f"\nacross: the ceiling, {ceiling_bytes / _GIB:.1f} GiB; x: where a curve meets it"
    return text


def write_svg(path: Path, title: str, curves: Sequence[Curve], ceiling_bytes: int | None) -> None:
    """The terminal's chart as an SVG file, in its colours.

    Raises:
        OSError: the file cannot be written.
    """
    console = Console(record=True, file=StringIO(), width=_WIDTH + _MARGIN)
    console.print(Text.from_ansi(draw(curves, ceiling_bytes, colours=True)))
    path.write_text(console.export_svg(title=title), encoding="utf-8")
