"""`kvroll plan`."""

from pathlib import Path
from typing import Annotated

import typer

from kvroll_cli.errors import UsageError
from kvroll_cli.kube.pools import Context, Namespace, cluster_of
from kvroll_cli.output import Exit, ExitCodeOption, Output, OutputOption, show


def plan(
    pool: Annotated[
        str | None, typer.Argument(metavar="[POOL]", help="The rollout of this pool: its price, and what it came to.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Price this InferencePool; nothing is applied.")
    ] = None,
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Price a change of precision before anything moves: sessions, bytes, tokens, devices, time, and what is gained."""
    if (pool is None) == (file is None):
        raise UsageError(f"expected POOL or --file, found {'neither' if pool is None else 'both'}")
    from kvroll_cli.commands.plan import planned, view

    if file is not None:
        found = planned.of_file(file, lambda where: cluster_of(namespace or where, context))
    else:
        found = planned.of_pool(cluster_of(namespace, context), str(pool))
    show(output, found.to_json(), lambda: view.plan_view(found))
    if exit_code and found.plan.blockers:
        raise typer.Exit(Exit.NO)
