"""`kvroll version`."""

from kvroll_cli.output import Output, OutputOption, show
from kvroll_core.release import VERSION


def version(output: OutputOption = Output.TABLE) -> None:
    """Print the version."""
    show(output, {"version": VERSION}, lambda: VERSION)
