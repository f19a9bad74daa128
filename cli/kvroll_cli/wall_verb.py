"""`kvroll wall`: what an engine or a pool is short of, from the engines' own metrics."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from kvroll_cli import wall_view
from kvroll_cli.errors import CliError
from kvroll_cli.model_shape import read_shape
from kvroll_cli.output import Exit, ExitCodeOption, Output, OutputOption, show
from kvroll_cli.quantity import parse_bytes
from kvroll_cli.scrape import look, read_sample, watch
from kvroll_core.budget import ModelShape, layer_token_bytes
from kvroll_core.formats import find_kv_format
from kvroll_core.wall import (
    MODEL_INFO,
    Advice,
    Counters,
    Load,
    Machine,
    Sample,
    SeriesError,
    Verdict,
    Wall,
    classify,
    counters_between,
    pooled,
    recommend,
    with_model,
)


@dataclass(frozen=True)
class Told:
    """What the command line says, where the engine does not: the model and its precision, the device, the replicas."""

    shape: ModelShape | None
    weights: str | None
    kv_cache: str | None
    machine: Machine
    replicas: int


@dataclass(frozen=True)
class Judged:
    """A verdict and its advice, and the counters behind both."""

    counters: Counters
    machine: Machine
    load: Load | None
    verdict: Verdict
    advice: tuple[Advice, ...]


def wall(
    pool: Annotated[
        str | None, typer.Argument(metavar="[POOL]", help="An InferencePool: its workers, through the API server.")
    ] = None,
    metrics_url: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Metrics of a vLLM or a worker; again for each worker of a pool."),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds to look.")] = 10.0,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between two scrapes.")] = 1.0,
    model: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Model folder or config.json, to reckon bytes and effects with.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Weight dtype, where the engine does not tell it.")] = None,
    kv: Annotated[str | None, typer.Option("--kv", help="KV-cache dtype, where the engine does not tell it.")] = None,
    device_bandwidth: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Measured bytes a second of the device, such as 3.0TB.")
    ] = None,
    device_flops: Annotated[
        str | None, typer.Option(metavar="FLOPS", help="Measured operations a second of the device, such as 790T.")
    ] = None,
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the pool.")] = None,
    context: Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")] = None,
) -> None:
    """Say what an engine or a pool is short of (bandwidth, room, arithmetic, nothing) with the figures, and what would
    change it. With --metrics-url it needs no cluster.
    """
    machine = Machine(
        parse_bytes(device_bandwidth) if device_bandwidth else None, parse_bytes(device_flops) if device_flops else None
    )
    if (pool is None) == (not metrics_url):
        raise CliError("expected a POOL or --metrics-url, found " + ("both" if pool else "neither"))
    if pool is not None:
        names, scrapes = _scrapes_of_pool(pool, namespace, context, interval, every)
    else:
        names = list(metrics_url or ())
        scrapes = watch(names, seconds=interval, every=every)
    told = Told(read_shape(model) if model else None, weights, kv, machine, len(names))
    judged = judge_all(names, scrapes, told, pool)
    document = wall_view.document_of_all([(n, w.verdict, w.advice) for n, w in judged])
    show(output, document, lambda: _views(judged))
    if exit_code and judged[0][1].verdict.wall is Wall.UNKNOWN:
        raise typer.Exit(Exit.NO)


def judge_all(
    names: Sequence[str], scrapes: Sequence[Sequence[Sample]], told: Told, pool: str | None
) -> list[tuple[str, Judged]]:
    """Each worker by its name; before them the pool, where it is one or there are several."""
    workers = [judge(samples, told) for samples in scrapes]
    found = list(zip(names, workers, strict=True))
    if pool is not None or len(workers) > 1:
        found.insert(0, (pool or "pool", _pool(workers, scrapes[0][-1])))
    return found


def _scrapes_of_pool(
    pool: str, namespace: str | None, context: str | None, interval: float, every: float
) -> tuple[list[str], list[list[Sample]]]:
    # Imported here: the Kubernetes client takes a second to import, which --metrics-url need not pay.
    from kvroll_cli.cluster import Cluster

    cluster = Cluster.connect(namespace=namespace, all_namespaces=False, context=context)
    cluster.pool(pool)
    names = cluster.workers(pool)
    if not names:
        raise CliError(f"expected running workers of {pool}, found none; see: kvroll status {pool}")
    sources = [partial(_sample, partial(cluster.worker_page, path="metrics"), name) for name in names]
    return names, look(sources, seconds=interval, every=every)


def _sample(metrics: Callable[[str], str], name: str) -> Sample:
    try:
        return read_sample(metrics(name), time.monotonic())
    except ValueError as error:
        raise CliError(f"expected Prometheus' text format of worker {name}, found: {error}") from error


def judge(samples: Sequence[Sample], told: Told) -> Judged:
    """The verdict on one engine.

    Raises:
        CliError: its series do not tell what it does.
    """
    try:
        counters = counters_between(samples)
    except SeriesError as error:
        raise CliError(str(error)) from error
    measured = samples[-1].machine()
    machine = Machine(
        told.machine.bytes_per_second or measured.bytes_per_second,
        told.machine.flops_per_second or measured.flops_per_second,
    )
    load = _load(counters, samples[-1], told)
    return _judged(with_model(counters, load) if load else counters, machine, load, samples[-1])


def _judged(counters: Counters, machine: Machine, load: Load | None, sample: Sample) -> Judged:
    verdict = classify(counters, machine)
    advice = recommend(verdict, load, sample.rates()) if load else ()
    return Judged(counters, machine, load, verdict, advice)


def _pool(workers: Sequence[Judged], sample: Sample) -> Judged:
    """The pool as its mean worker; its devices are taken to be alike."""
    first = workers[0]
    return _judged(pooled([w.counters for w in workers]), first.machine, first.load, sample)


def _load(counters: Counters, sample: Sample, told: Told) -> Load | None:
    """The mean batch, where the model is known and something runs: contexts are the pages in use over the sessions
    that run.
    """
    pool_tokens = sample.pool_tokens()
    if told.shape is None or not counters.running or not pool_tokens or not counters.kv_used:
        return None
    info = sample.info(MODEL_INFO)
    kv_cache = told.kv_cache or info.get("kv_cache") or "bf16"
    tokens = counters.kv_used * pool_tokens / counters.running
    token_bytes = layer_token_bytes(told.shape.kv_groups, find_kv_format(kv_cache), max(1, round(tokens)))
    steps, busy = counters.steps, counters.busy_seconds
    return Load(
        shape=told.shape,
        weights=told.weights or info.get("weights") or "bf16",
        kv_cache=kv_cache,
        sessions=counters.running,
        tokens=tokens,
        pool_bytes=pool_tokens * token_bytes,
        step_seconds=busy / steps if busy and steps else counters.inter_token_mean_seconds,
        replicas=told.replicas,
    )


def _views(judged: Sequence[tuple[str, Judged]]) -> Group:
    parts = []
    for name, worker in judged:
        parts += [wall_view.verdict_view(name, worker.verdict, worker.advice), ""]
    return Group(*parts[:-1])
