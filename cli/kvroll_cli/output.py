"""How every verb prints: a table for people, JSON or YAML for programs, and its exit codes."""

import json
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvroll_cli.terminal import console

if TYPE_CHECKING:
    from rich.console import RenderableType


class Output(StrEnum):
    """How a verb prints."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Exit(IntEnum):
    """Exit codes: 2, wrong usage, is the argument parser's and `UsageError`'s."""

    DONE = 0
    REFUSED = 1
    NO = 3


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="A table for people, JSON or YAML for programs.")]
ExitCodeOption = Annotated[bool, typer.Option("--exit-code", help="Leave with 3 when the answer is no.")]


def show(output: Output, document: dict[str, Any], view: "Callable[[], RenderableType]") -> None:
    """Prints the document for programs, or what `view` draws of it for people."""
    if output is Output.JSON:
        typer.echo(json.dumps(document, indent=2))
    elif output is Output.YAML:
        import yaml

        typer.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
    else:
        drawn = view()
        if isinstance(drawn, str):
            typer.echo(drawn)
        else:
            console().print(drawn)
