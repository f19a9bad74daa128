"""Where the demo is watched: drawn live on a terminal, a line a change elsewhere."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from kvroll_cli.demo.picture import draw, summary
from kvroll_cli.demo.scene import Scene
from kvroll_cli.terminal import can_redraw

_REDRAWS_PER_SECOND = 4


class Screen(Protocol):
    """Takes what happens; a context, so that the terminal is whole afterwards."""

    def __enter__(self) -> "Screen": ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def say(self, text: str) -> None:
        """A step begins."""

    def show(self, look: Callable[[], Scene]) -> None:
        """The state of things; a screen that draws by itself asks again later."""

    def end(self, report: dict[str, Any]) -> None:
        """The table at the end."""


class _Picture:
    """The newest scene, drawn for the terminal as it is at that moment."""

    def __init__(self) -> None:
        self.look: Callable[[], Scene] = Scene

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield draw(self.look(), options.max_width, options.size.height)


class LiveScreen:
    """Redraws in place a few times a second; steps scroll away above the picture."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._picture = _Picture()
        self._live = Live(
            self._picture,
            console=console,
            refresh_per_second=_REDRAWS_PER_SECOND,
            transient=True,
            redirect_stderr=False,
        )
        self._started = time.monotonic()

    def __enter__(self) -> "LiveScreen":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(_step(text, time.monotonic() - self._started))

    def show(self, look: Callable[[], Scene]) -> None:
        self._picture.look = look

    def end(self, report: dict[str, Any]) -> None:
        self._live.stop()
        self._console.print(summary(report, self._console.width))


class LineScreen:
    """A line for each step and for each change of what the operator shows, as `kubectl get -w` does it; no line is ever wrapped."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = ""
        self._started = time.monotonic()

    def __enter__(self) -> "LineScreen":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def say(self, text: str) -> None:
        self._line(_step(text, time.monotonic() - self._started))

    def show(self, look: Callable[[], Scene]) -> None:
        scene = look()
        state = line(scene)
        if state and state != self._shown:
            self._line(Text(f"{scene.seconds:5.1f} s  {scene.num_streaming:2d} streams  {state}"))
        self._shown = state

    def end(self, report: dict[str, Any]) -> None:
        self._console.print(summary(report, self._console.width))

    def _line(self, text: RenderableType) -> None:
        self._console.print(text, soft_wrap=True)


def screen_of(console: Console) -> Screen:
    """What this console can do."""
    return LiveScreen(console) if can_redraw(console) else LineScreen(console)


def line(scene: Scene) -> str:
    """Groups as `id:Phase(sessions)`, and what became of sessions."""
    groups = "  ".join(f"{number}:{phase}({sessions})" for number, phase, sessions in scene.groups)
    counts = " ".join(f"{way} {count}" for way, count in scene.counts.items())
    return f"{groups}  {counts}".rstrip()


def _step(text: str, seconds: float) -> Text:
    return Text.assemble((f"{seconds:4.0f} s", "dim"), "  ", (text, "bold"))
