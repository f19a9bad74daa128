"""Keeps a view open: redrawn in place on a terminal, printed again when it changed elsewhere."""

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from kvroll_cli.errors import CliError
from kvroll_cli.terminal import can_redraw


def watch_view(
    view: Callable[[], RenderableType],
    console: Console,
    *,
    interval_seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Shows `view()` every `interval_seconds` until Ctrl-C. Once it has been seen, an API server that goes away is
    waited for.

    Raises:
        CliError: the very first look failed.
    """
    shown: RenderableType = view()
    try:
        if can_redraw(console):
            _redraw(shown, view, console, interval_seconds, sleep)
        else:
            _reprint(shown, view, console, interval_seconds, sleep)
    except KeyboardInterrupt:
        return


def _redraw(
    shown: RenderableType,
    view: Callable[[], RenderableType],
    console: Console,
    interval_seconds: float,
    sleep: Callable[[float], None],
) -> None:
    with Live(shown, console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            live.refresh()
            sleep(interval_seconds)
            try:
                shown = view()
                live.update(shown)
            except CliError as error:
                live.update(Group(shown, Text(f"\n{error}", style="yellow")))


def _reprint(
    shown: RenderableType,
    view: Callable[[], RenderableType],
    console: Console,
    interval_seconds: float,
    sleep: Callable[[float], None],
) -> None:
    last = ""
    while True:
        with console.capture() as captured:
            console.print(shown)
        if captured.get() != last:
            last = captured.get()
            console.print(last, end="", markup=False, highlight=False)
        sleep(interval_seconds)
        try:
            shown = view()
        except CliError as error:
            shown = Text(str(error))
