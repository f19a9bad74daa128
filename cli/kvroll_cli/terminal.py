"""What stdout is: a terminal that can be redrawn, one that cannot, or a file or pipe; and which characters it can show."""

import codecs
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_ENDLESS_COLUMNS = 100_000
"""Wider than anything that is printed: a file has no width, so nothing is wrapped or cut for it."""
_PLAIN = {
    "…": "...",
    "–": "-",
    "—": "-",
    "→": "->",
    "━": "=",
    "╸": "-",
    "╺": "-",
    "−": "-",
    "×": "x",
    "’": "'",
    "“": '"',
    "”": '"',
}
_HANDLER = "kvroll-plain"


def console() -> "Console":
    """The terminal at its width; or a file or pipe, which has none: nothing is wrapped or cut there."""
    from rich.console import Console

    _show_every_character()
    if sys.stdout.isatty():
        return Console()
    return Console(width=_ENDLESS_COLUMNS)


def can_redraw(screen: "Console") -> bool:
    """True of a terminal with a cursor that can be moved: not of a file, a pipe or `TERM=dumb`."""
    return screen.is_terminal and not screen.is_dumb_terminal


def _show_every_character() -> None:
    """A locale without Unicode gets a look-alike, or `?`, instead of a traceback: a model writes what it likes."""
    codecs.register_error(_HANDLER, _look_alike)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors=_HANDLER)


def _look_alike(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_PLAIN.get(char, "?") for char in error.object[error.start : error.end]), error.end
