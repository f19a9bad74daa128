"""`kvroll history`."""

from kvroll_cli.output import Output, OutputOption, show
from kvroll_cli.pools import Context, Namespace, PoolArgument, cluster_of


def history(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """List the revisions of a pool: precision, rollout, the last good one, the failed ones."""
    from kvroll_cli import history_view

    cluster = cluster_of(namespace, context)
    cluster.pool(pool)
    revisions = cluster.revisions(pool)
    show(output, {"revisions": history_view.rows(revisions)}, lambda: history_view.history(revisions))
