"""`kvroll demo`: the main job on this machine, to watch."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvroll_cli.output import Exit

_INTERRUPTED = 130


class BackendName(StrEnum):
    """Where the demo runs."""

    EMBEDDED = "Embedded"
    KUBERNETES = "Kubernetes"


def demo(
    backend: Annotated[
        BackendName,
        typer.Option(help="Embedded: on this machine alone. Kubernetes: on the cluster of `make cluster-up`."),
    ] = BackendName.EMBEDDED,
    report: Annotated[Path, typer.Option(metavar="FILE", help="Where the report is written.")] = Path(
        "build/demo/report.json"
    ),
) -> None:
    """Change a live pool's precision twice while chats stream, and count what their clients received."""
    from kvroll_cli.demo.run import run

    faults = run(backend.value, report)
    if faults is None:
        raise typer.Exit(_INTERRUPTED)
    if faults:
        raise typer.Exit(Exit.REFUSED)
