"""The verbs that ask the operator for a decision. Each writes one annotation, `kvroll.dev/request`, and never the spec: GitOps does not
undo it, and the operator keeps the decision itself.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvroll_cli.errors import CliError
from kvroll_cli.kube.pools import Context, Namespace, PoolArgument, cluster_of
from kvroll_cli.output import Output, OutputOption, show

if TYPE_CHECKING:
    from kvroll_cli.kube.cluster import Cluster

WorkerArgument = Annotated[str, typer.Argument(metavar="WORKER", help="Name of the worker's Pod.")]


def pause(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """Hold the rollout: no group enters it; drains under way end. The spec is not touched."""
    _ask("pause", pool, output, cluster_of(namespace, context))


def resume(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """Let a held rollout go on."""
    _ask("resume", pool, output, cluster_of(namespace, context))


def approve(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """Let a rollout begin that waits for approval (`rollout.approval: Plan`); `kvroll plan POOL` shows its price."""
    _ask("approve", pool, output, cluster_of(namespace, context))


def abort(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """End the rollout: groups that have changed stay, a group under way goes back, and the pool holds there."""
    _ask("abort", pool, output, cluster_of(namespace, context))


def rollback(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """End the rollout, or leave one that failed, and go back to the last good revision, sessions and all."""
    _ask("rollback", pool, output, cluster_of(namespace, context))


def retry(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """Try the revision of the spec again after its rollout failed or was ended."""
    from kvroll_cli.commands.history import view as history_view

    cluster = cluster_of(namespace, context)
    cluster.pool(pool)
    failed = history_view.failed_rollout(cluster.revisions(pool))
    if failed is None:
        raise CliError(f"expected a failed or ended rollout of {pool} to retry, found none")
    _request(cluster, "retry", pool, failed, f"rollout {failed} of {pool}", output)


def drain(
    pool: PoolArgument,
    worker: WorkerArgument,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Move a worker's sessions off and replace it; its successor serves first, as far as `maxUnavailable` asks for it."""
    cluster = cluster_of(namespace, context)
    cluster.pool(pool)
    pods = {pod["metadata"]["name"]: pod for pod in cluster.pods(pool)}
    if worker not in pods:
        raise CliError(f"expected a worker of {pool}, found {worker}; its workers: {', '.join(pods) or 'none'}")
    metadata = pods[worker]["metadata"]
    if "deletionTimestamp" in metadata:
        raise CliError(f"expected a worker of {pool} that stays, found {worker} leaving already")
    _request(cluster, "drain", pool, metadata["uid"], f"worker {worker} of {pool}", output)


def _ask(verb: str, pool: str, output: Output, cluster: "Cluster") -> None:
    from kvroll_cli.kube.snapshot import Snapshot

    rollout = Snapshot.of(cluster.pool(pool), []).status.rollout
    if not rollout.id or rollout.phase == "Complete":
        raise CliError(f"expected a rollout of {pool} to {verb}, found {rollout.phase or 'none yet'}")
    if rollout.phase == "Failed" and verb != "rollback":
        raise CliError(
            f"expected a rollout of {pool} that goes on to {verb}, found Failed: retry it, or go back by rollback"
        )
    if verb == "approve" and rollout.phase != "AwaitingApproval":
        raise CliError(f"expected a rollout of {pool} that waits for approval, found {rollout.phase}")
    _request(cluster, verb, pool, rollout.id, f"rollout {rollout.id} of {pool}", output)


def _request(cluster: "Cluster", verb: str, pool: str, about: str, what: str, output: Output) -> None:
    """`about` is a rollout's id, or a Pod's UID: a request is about exactly that, and never about a later one of the same name."""
    cluster.request(pool, verb, about)
    asked: dict[str, Any] = {"namespace": cluster.namespace, "pool": pool, "request": f"{verb}@{about}"}
    show(output, asked, lambda: f"asked the operator to {verb} {what}; see: kvroll status {pool}")
