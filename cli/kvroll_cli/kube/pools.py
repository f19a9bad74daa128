"""The arguments of every verb that asks the cluster, and the connection that they name."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvroll_cli.kube.cluster import Cluster

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; by default the kubeconfig's.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Pools of every namespace.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Name of the InferencePool.")]


def cluster_of(namespace: str | None, context: str | None, *, all_namespaces: bool = False) -> "Cluster":
    """The cluster that those options name.

    Raises:
        CliError: there is no usable kubeconfig.
    """
    # Imported here: the Kubernetes client takes a second to import, which `--help` and `budget` need not pay.
    from kvroll_cli.kube.cluster import Cluster

    return Cluster.connect(namespace=namespace, all_namespaces=all_namespaces, context=context)
