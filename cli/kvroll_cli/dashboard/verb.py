"""`kvroll dashboard`."""

from typing import Annotated

import typer

from kvroll_cli.errors import CliError
from kvroll_cli.kube.pools import AllNamespaces, Context, Namespace, cluster_of


def dashboard(
    pool: Annotated[str | None, typer.Argument(metavar="[POOL]", help="One pool; all of them without.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0: a free one.")] = 8790,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between looks at the cluster.")] = 1.0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    context: Context = None,
) -> None:
    """Show pools live on a local page that only reads; Ctrl-C ends it."""
    from kvroll_cli.dashboard import serving
    from kvroll_cli.dashboard.feed import ClusterLook
    from kvroll_cli.listener import bound

    look = ClusterLook(cluster_of(namespace, context, all_namespaces=all_namespaces), pool)
    refusal = look()["problem"]
    if refusal and not look.has_seen:
        raise CliError(refusal)
    listener = bound(serving.HOST, port)
    typer.echo(f"showing pools at {serving.address(listener)}; Ctrl-C ends it")
    if open_browser:
        typer.launch(serving.address(listener))
    serving.run(look, listener, interval)
