"""`kvroll wall`: what an engine or a pool is short of, from the engines' own metrics."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group

from kvroll_cli.commands.wall import view
from kvroll_cli.errors import CliError, UsageError
from kvroll_cli.kube.pools import Context, Namespace
from kvroll_cli.model_shape import read_shape
from kvroll_cli.output import Exit, ExitCodeOption, Output, OutputOption, show
from kvroll_cli.quantity import parse_bytes
from kvroll_core.wall import Judged, Machine, Sample, SeriesError, Told, Wall, judge, judge_pool

if TYPE_CHECKING:
    from kvroll_cli.engines.dcgm import Dcgm


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
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="A Prometheus that scrapes the DCGM exporter: confirms by the device's counters."
        ),
    ] = None,
    gpus: Annotated[
        str, typer.Option(metavar="SELECTOR", help='Of --prometheus: the devices, such as \'Hostname="n1",gpu="0"\'.')
    ] = "",
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Say what an engine or a pool is short of (bandwidth, room, arithmetic, nothing) with the figures, and what would
    change it. With --metrics-url it needs no cluster.
    """
    machine = Machine(
        parse_bytes(device_bandwidth) if device_bandwidth else None, parse_bytes(device_flops) if device_flops else None
    )
    if (pool is None) == (not metrics_url):
        raise UsageError("expected a POOL or --metrics-url, found " + ("both" if pool else "neither"))
    shape = read_shape(model) if model else None
    if pool is not None:
        from kvroll_cli.engines.of_pool import engines_of

        engines = engines_of(pool, namespace, context, seconds=interval, every=every)
        names, scrapes, shape = engines.names, engines.samples, shape or engines.shape
    else:
        from kvroll_cli.engines.scrape import watch

        names = list(metrics_url or ())
        scrapes = watch(names, seconds=interval, every=every)
    if prometheus is not None:
        from kvroll_cli.engines.dcgm import Dcgm

        scrapes = _with_counters(Dcgm(prometheus, gpus), names, scrapes, pool, interval)
    told = Told(shape, weights, kv, machine, len(names))
    judged = judge_all(names, scrapes, told, pool)
    document = view.document_of_all([(n, w.verdict, w.advice) for n, w in judged])
    show(output, document, lambda: _views(judged))
    if exit_code and judged[0][1].verdict.wall is Wall.UNKNOWN:
        raise typer.Exit(Exit.NO)


def judge_all(
    names: Sequence[str], scrapes: Sequence[Sequence[Sample]], told: Told, pool: str | None
) -> list[tuple[str, Judged]]:
    """Each worker by its name; before them the pool, where it is one or there are several."""
    workers = [judge_one(samples, told) for samples in scrapes]
    found = list(zip(names, workers, strict=True))
    if pool is not None or len(workers) > 1:
        found.insert(0, (pool or "pool", judge_pool(workers, scrapes[0][-1].rates())))
    return found


def _with_counters(
    dcgm: "Dcgm", names: Sequence[str], scrapes: Sequence[Sequence[Sample]], pool: str | None, seconds: float
) -> list[list[Sample]]:
    """Of a pool each worker has the counters of its own devices, by its Pod's name."""
    if pool is None and len(names) > 1:
        raise UsageError("expected one --metrics-url with --prometheus, found several: which has which GPU is not told")
    from kvroll_cli.engines.dcgm import beside, of_pod

    counters = dcgm.read(seconds)
    return [
        beside(samples, of_pod(counters, name) if pool is not None else counters)
        for name, samples in zip(names, scrapes, strict=True)
    ]


def judge_one(samples: Sequence[Sample], told: Told) -> Judged:
    """The verdict on one engine.

    Raises:
        CliError: its series do not tell what it does.
    """
    try:
        return judge(samples, told)
    except SeriesError as error:
        raise CliError(str(error)) from error


def _views(judged: Sequence[tuple[str, Judged]]) -> Group:
    parts = []
    for name, worker in judged:
        parts += [view.verdict_view(name, worker.verdict, worker.advice), ""]
    return Group(*parts[:-1])
