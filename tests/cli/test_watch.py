"""The view that stays open."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console
from rich.text import Text

from kvroll_cli.errors import CliError
from kvroll_cli.watch import watch_view

Look = str | CliError


def views(*looks: Look) -> tuple[Callable[[], Text], Callable[[float], None]]:
    """A view that shows `looks` in order, and a sleep that is interrupted once the last was shown."""
    left = list(looks)

    def view() -> Text:
        look = left.pop(0)
        if isinstance(look, CliError):
            raise look
        return Text(look)

    def sleep(seconds: float) -> None:
        if not left:
            raise KeyboardInterrupt

    return view, sleep


def watched(*looks: Look, terminal: bool) -> str:
    view, sleep = views(*looks)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    watch_view(view, console, interval_seconds=1, sleep=sleep)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_pipe_gets_each_change_once() -> None:
    assert watched("1/3", "1/3", "2/3", "2/3", "3/3", terminal=False) == "1/3\n2/3\n3/3\n"


def test_a_pipe_learns_that_the_api_server_was_away() -> None:
    assert watched("1/3", CliError("no answer"), "2/3", terminal=False) == "1/3\nno answer\n2/3\n"


def test_a_terminal_is_redrawn_in_place_and_keeps_the_last_view_while_the_api_server_is_away() -> None:
    drawn = watched("1/3", CliError("no answer"), "2/3", terminal=True)
    assert "no answer" in drawn
    assert drawn.index("1/3") < drawn.index("no answer") < drawn.rindex("2/3")
    assert "\x1b[" in drawn


def test_a_first_look_that_fails_ends_it() -> None:
    with pytest.raises(CliError, match="no answer"):
        watched(CliError("no answer"), terminal=True)
