"""`kvroll status`."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from kvroll_cli.errors import UsageError
from kvroll_cli.kube.pools import AllNamespaces, Context, Namespace, cluster_of
from kvroll_cli.output import Output, OutputOption, show
from kvroll_cli.terminal import can_redraw, console


def status(
    pool: Annotated[
        str | None, typer.Argument(metavar="[POOL]", help="One pool in detail; all of them without.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep the view open and up to date; Ctrl-C ends it.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between looks with --watch.")] = 1.0,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    context: Context = None,
) -> None:
    """Show pools: precision, groups, sessions, drains, and what they wait for."""
    from kvroll_cli.commands.status import view
    from kvroll_cli.commands.status.document import status_document
    from kvroll_cli.kube.snapshot import take
    from kvroll_cli.watch import watch_view

    if watch and output is not Output.TABLE:
        raise UsageError(
            f"expected --watch or --output {output}, found both: watch objects with `kubectl get kvpool -w -o {output}`"
        )
    cluster = cluster_of(namespace, context, all_namespaces=all_namespaces)

    screen = console()

    def drawn() -> Any:
        found = take(cluster, pool)
        # A log gets each change once, so nothing may stand in it that passes by itself.
        now = datetime.now(UTC) if can_redraw(screen) or not watch else None
        return view.details(found[0], now) if len(found) == 1 else view.overview(found)

    if output is not Output.TABLE:
        show(output, {"pools": [status_document(found, datetime.now(UTC)) for found in take(cluster, pool)]}, drawn)
    elif watch:
        watch_view(drawn, screen, interval_seconds=interval)
    else:
        screen.print(drawn())
