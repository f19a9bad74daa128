"""How tables and words look: as kubectl draws them, with the words coloured that matter."""

from rich.table import Table
from rich.text import Text

_CALM = {"Stable", "Updated", "Complete", "Gone", "Pass"}
_BAD = {"Failed", "Reverting", "Fail"}
_NUMBERS = {
    "SESSIONS",
    "LOST",
    "HELD",
    "LEFT",
    "EXACT",
    "CONVERTED",
    "REPLAYED",
    "FINISHED",
    "SENT",
    "MOVED",
    "SILENT",
    "PLANNED",
    "ACTUAL",
    "RATIO",
    "VALUE",
}
_PROSE = {"WHY", "BECAUSE", "WHAT BRINGS IT"}
"""Sentences: these give way on a narrow terminal, by lines, so that no word beside them is cut."""


def table_of(*columns: str) -> Table:
    """A table as kubectl draws it: no lines, counts to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=column not in _PROSE, justify="right" if column in _NUMBERS else "left")
    return table


def word(phase: str) -> Text:
    """A phase or a verdict."""
    style = "green" if phase in _CALM else "red" if phase in _BAD else "cyan"
    return Text(phase, style=style)


def lost(count: int) -> Text:
    """A count that shall be 0."""
    return Text(str(count), style="red bold" if count else "")
