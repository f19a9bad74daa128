"""`kvroll wall`: what an engine or a pool is short of, from the engines' own metrics."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group

from kvroll_cli.commands.wall import view
from kvroll_cli.errors import CliError, UsageError
from kvroll_cli.kube.pools import Context, Namespace
from kvroll_cli.model_shape import read_stored
from kvroll_cli.output import Exit, ExitCodeOption, Output, OutputOption, show
from kvroll_cli.quantity import parse_bytes
from kvroll_core.wall import (
    Found,
    Judged,
    Machine,
    Sample,
    SeriesError,
    Told,
    Wall,
    engines_in,
    judge_engine,
    judge_pool,
)

if TYPE_CHECKING:
    from kvroll_cli.engines.dcgm import Dcgm


def wall(
    pool: Annotated[
        str | None, typer.Argument(metavar="[POOL]", help="An InferencePool: its workers, through the API server.")
    ] = None,
    metrics_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Metrics of a vLLM, SGLang, TensorRT-LLM, llama.cpp or a worker; again for each of a pool.",
        ),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds to look.")] = 10.0,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between two scrapes.")] = 1.0,
    model: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Model folder or config.json, to reckon bytes and effects with.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Weight dtype in the engine's own word, where it does not tell it.")
    ] = None,
    kv: Annotated[
        str | None, typer.Option("--kv", help="KV-cache dtype in the engine's own word, where it does not tell it.")
    ] = None,
    device_bandwidth: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Measured bytes a second of one device, such as 3.0TB.")
    ] = None,
    device_flops: Annotated[
        str | None, typer.Option(metavar="FLOPS", help="Measured operations a second of one device, such as 790T.")
    ] = None,
    devices: Annotated[
        int,
        typer.Option(min=1, help="Devices that an engine spans (tensor x pipeline parallelism): they share its bytes."),
    ] = 1,
    kv_used: Annotated[
        float | None, typer.Option(min=0, max=1, help="Used share of the KV cache, where the engine does not tell it.")
    ] = None,
    kv_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens that the KV cache holds, where the engine does not tell it.")
    ] = None,
    engine_version: Annotated[
        str, typer.Option(metavar="VERSION", help="Of the engine: names dtypes that only newer ones have, too.")
    ] = "",
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="A Prometheus that scrapes the DCGM exporter: confirms by the device's counters."
        ),
    ] = None,
    gpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SELECTOR",
            help='Of --prometheus: the devices of an engine, such as \'Hostname="n1",gpu="0"\'; again for each engine, in the order shown.',
        ),
    ] = None,
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
    shape, checkpoint = read_stored(model) if model else (None, None)
    if pool is not None:
        from kvroll_cli.engines.of_pool import engines_of

        looked = engines_of(pool, namespace, context, seconds=interval, every=every)
        names, scrapes, shape = looked.names, looked.samples, shape or looked.shape
    else:
        from kvroll_cli.engines.scrape import watch

        names = list(metrics_url or ())
        scrapes = watch(names, seconds=interval, every=every)
    engines = engines_of_pages(names, scrapes)
    if prometheus is not None:
        from kvroll_cli.engines.dcgm import Dcgm

        engines = _with_counters(Dcgm(prometheus), gpus or [], engines, pool, interval)
    told = Told(shape, weights, kv, machine, len(engines), devices, kv_used, kv_tokens, engine_version, checkpoint)
    judged = judge_all(engines, told, pool)
    show(output, view.document_of_all(judged), lambda: _views(judged))
    if exit_code and judged[0][1].verdict.wall is Wall.UNKNOWN:
        raise typer.Exit(Exit.NO)


def engines_of_pages(names: Sequence[str], scrapes: Sequence[Sequence[Sample]]) -> list[tuple[str, Found]]:
    """Every engine of every page, by the page's name and what tells it apart there.

    Raises:
        CliError: a page shows no engine.
    """
    found = []
    for name, samples in zip(names, scrapes, strict=True):
        try:
            found += [(f"{name} {engine.name}".rstrip(), engine) for engine in engines_in(samples)]
        except SeriesError as error:
            raise CliError(f"{name}: {error}") from error
    return found


def judge_all(engines: Sequence[tuple[str, Found]], told: Told, pool: str | None) -> list[tuple[str, Judged]]:
    """Each engine by its name; before them the pool, where it is one or there are several."""
    found = [(name, judge_one(name, engine, told)) for name, engine in engines]
    if pool is not None or len(found) > 1:
        rates = engines[0][1].views[-1].sample.rates()
        found.insert(0, (pool or "pool", judge_pool([w for _, w in found], rates)))
    return found


def _with_counters(
    dcgm: "Dcgm", gpus: Sequence[str], engines: Sequence[tuple[str, Found]], pool: str | None, seconds: float
) -> list[tuple[str, Found]]:
    """Of a pool each worker has the counters of its own devices, by its Pod's name; of engines by --gpus, one selector each."""
    from kvroll_cli.engines.dcgm import of_pod, told_only

    if pool is None and len(engines) != max(1, len(gpus)):
        names = ", ".join(name for name, _ in engines)
        raise UsageError(
            f"expected --gpus once for each engine with --prometheus, found {len(gpus)} for {len(engines)}: {names};"
            " which has which GPU is not told"
        )
    if pool is None:
        counters = [dcgm.read(seconds, selector) for selector in gpus or [""]]
    else:
        every = dcgm.read(seconds, gpus[0] if gpus else "")
        counters = [of_pod(every, name) for name, _ in engines]
    return [(n, engine.beside(told_only(c))) for (n, engine), c in zip(engines, counters, strict=True)]


def judge_one(name: str, engine: Found, told: Told) -> Judged:
    """The verdict on one engine.

    Raises:
        CliError: its series do not tell what it does.
        UsageError: it has no such dtype.
    """
    try:
        return judge_engine(engine, told)
    except SeriesError as error:
        raise CliError(f"{name}: {error}") from error
    except ValueError as error:  # a dtype that the engine, or our table, does not have
        raise UsageError(str(error)) from error


def _views(judged: Sequence[tuple[str, Judged]]) -> Group:
    parts = []
    for name, worker in judged:
        parts += [view.verdict_view(name, worker), ""]
    return Group(*parts[:-1])
