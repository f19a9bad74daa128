"""`kvroll history`."""

from kvroll_cli.kube.pools import Context, Namespace, PoolArgument, cluster_of
from kvroll_cli.output import Output, OutputOption, show


def history(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """List the revisions of a pool: precision, rollout, the last good one, the failed ones."""
    from kvroll_cli.commands.history import view

    cluster = cluster_of(namespace, context)
    cluster.pool(pool)
    revisions = cluster.revisions(pool)
    show(output, {"revisions": view.rows(revisions)}, lambda: view.history(revisions))
