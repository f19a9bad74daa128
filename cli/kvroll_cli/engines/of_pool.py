"""The engines of a live pool, through the API server's proxy: their metrics over a while, and the sizes of the model that they run."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kvroll_cli.engines.scrape import look, read_sample
from kvroll_cli.errors import CliError
from kvroll_cli.kube.cluster import Cluster
from kvroll_cli.kube.pools import cluster_of
from kvroll_core.budget import ModelShape
from kvroll_core.wall import Sample


@dataclass(frozen=True)
class PoolEngines:
    """Workers by name, the samples of each, and the model's shape; None where no worker says it (an engine that is not ours)."""

    names: list[str]
    samples: Sequence[Sequence[Sample]]
    shape: ModelShape | None


def engines_of(pool: str, namespace: str | None, context: str | None, *, seconds: float, every: float) -> PoolEngines:
    """Looks at the running workers of a pool for so long.

    Raises:
        CliError: no such pool, no running worker, no access to `pods/proxy`, or a page that is not Prometheus' text format.
    """
    cluster = cluster_of(namespace, context)
    cluster.pool(pool)
    names = cluster.workers(pool)
    if not names:
        raise CliError(f"expected running workers of {pool}, found none; see: kvroll status {pool}")
    sources = [partial(_sample, partial(cluster.worker_page, path="metrics"), name) for name in names]
    samples = look(sources, seconds=seconds, every=every)
    return PoolEngines(names, samples, _shape(cluster, names))


def _sample(metrics: Callable[[str], str], name: str) -> Sample:
    try:
        return read_sample(metrics(name), time.monotonic())
    except ValueError as error:
        raise CliError(f"expected Prometheus' text format of worker {name}, found: {error}") from error


def _shape(cluster: Cluster, names: Sequence[str]) -> ModelShape | None:
    """As the first worker reports it; all of a pool run one model."""
    from kvroll_cli.kube.reports import read_report
    from kvroll_operator.api.facts import worker_facts

    for name in names:
        try:
            facts = worker_facts(read_report(cluster, name))
        except CliError:
            continue
        if facts is not None:
            return facts.shape
    return None
