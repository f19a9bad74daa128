"""Memory over concurrency as a chart: braille in a terminal, or an SVG file by a plotting library."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvroll_cli.errors import CliError, UsageError
from kvroll_core.budget import Point

_GIB = 2**30
_WIDTH, _HEIGHT = 72, 18
_COLOURS = ("green", "cyan", "yellow", "magenta", "blue", "white")
# Told apart by people who do not see all colours, too: Okabe and Ito's palette (https://jfly.uni-koeln.de/color/).
_SVG_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A7500", "#000000")
_SVG_STYLES = ("-", ":", "-.")
_CEILING = "#B00020"


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
    """The same chart as an SVG file: a colour for each curve, a legend, the ceiling dashed.

    Raises:
        UsageError: the file cannot be written.
        CliError: the plotting library is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CliError("expected matplotlib to draw an SVG, found none: pip install 'kvroll[charts]'") from error

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot(title=title, xlabel="sessions", ylabel="GiB")
    for index, curve in enumerate(curves):
        xs, ys = [p.sessions for p in curve.points], [p.total_bytes / _GIB for p in curve.points]
        style = _SVG_STYLES[index // len(_SVG_COLOURS) % len(_SVG_STYLES)]
        axes.plot(xs, ys, style, color=_SVG_COLOURS[index % len(_SVG_COLOURS)], label=curve.label)
    if ceiling_bytes is not None:
        label = f"the ceiling, {ceiling_bytes / _GIB:.1f} GiB"
        axes.axhline(ceiling_bytes / _GIB, color=_CEILING, linestyle="--", label=label)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend()
    try:
        # Letters stay letters, and the file is the same for the same curves.
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kvroll"}):
            figure.savefig(path, format="svg", metadata={"Date": None})
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        raise UsageError(f"expected a file that can be written, found {found}: {path}") from error
