"""`kvroll budget`: what fits into a device, before anything is loaded."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kvroll_cli import budget_view
from kvroll_cli.chart import Curve, draw, write_svg
from kvroll_cli.errors import CliError
from kvroll_cli.model_shape import read_shape
from kvroll_cli.output import Exit, ExitCodeOption, Output, OutputOption, show
from kvroll_cli.quantity import parse_bytes
from kvroll_core.budget import Ask, Fit, ModelShape, reckon, sweep
from kvroll_core.formats import HEAD_SAME, KV_FORMATS, WEIGHT_BLOCK, WEIGHT_FORMATS, chosen_block, head_dtype
from kvroll_core.kv_form import parse_layers


def budget(
    model: Annotated[Path, typer.Option(metavar="PATH", help="A model folder, or its config.json.")],
    device_memory: Annotated[
        str | None, typer.Option("--device-memory", "-m", metavar="BYTES", help="Memory of one worker, such as 80GiB.")
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions at once, at the peak.")] = 1,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a session, prompt and answer; by default the most.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Only this weight dtype.")] = None,
    weight_block: Annotated[
        int, typer.Option("--weight-block-size", help="Inputs that share a scale of int4: 32, 64 or 128.")
    ] = WEIGHT_BLOCK,
    head: Annotated[str, typer.Option(help="The output head: Same or int8.")] = HEAD_SAME,
    kv: Annotated[str | None, typer.Option("--kv", help="Only this KV-cache dtype.")] = None,
    skip_layers: Annotated[
        str, typer.Option(metavar="0,1,29", help="Layers whose KV stays bf16 (precision.skipLayers).")
    ] = "",
    with_sweep: Annotated[
        bool, typer.Option("--sweep", help="Draw memory over concurrency, up to the ceiling.")
    ] = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write that chart as SVG, too.")] = None,
    headroom: Annotated[float, typer.Option(min=0, max=0.9, help="Share of the device that is left free.")] = 0.1,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens of one engine step, for the activations.")] = 256,
    residual_tokens: Annotated[
        int, typer.Option(min=0, help="Newest tokens that kivi4 and kivi2 keep in 16 bits.")
    ] = 128,
    sinks: Annotated[int, typer.Option(min=0, help="First tokens that layers with a window keep besides.")] = 0,
    weights_bytes: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Size of the weights, instead of what the config comes to.")
    ] = None,
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Reckon what fits into a device at every precision: weights, KV, sessions, and where the ceiling is. Needs no
    cluster.
    """
    shape = replace(read_shape(model), sinks=sinks)
    ask = Ask(
        weights=weights or "bf16",
        kv_cache=kv or "bf16",
        sessions=sessions,
        tokens=tokens or shape.max_positions,
        device_bytes=parse_bytes(device_memory) if device_memory else None,
        headroom_fraction=headroom,
        max_batch_tokens=batch_tokens,
        residual_tokens=residual_tokens,
        weights_bytes=parse_bytes(weights_bytes) if weights_bytes else None,
        weight_block=weight_block,
        head=head,
        kv_skip_layers=parse_layers(skip_layers),
    )
    chosen_block("int4", weight_block)
    head_dtype(ask.weights, head)
    try:
        asked = reckon(shape, ask)
    except ValueError as error:
        raise CliError(str(error)) from error
    fits = _all(shape, ask, [weights] if weights else list(WEIGHT_FORMATS), [kv] if kv else list(KV_FORMATS))
    document = budget_view.document(asked, fits)
    curves = _curves(shape, asked, fits) if with_sweep or svg else []
    if curves:
        document = budget_view.with_sweep(document, curves[0].points)
    show(output, document, lambda: budget_view.budget_view(asked, fits))
    if with_sweep and output is Output.TABLE:
        typer.echo(f"\n{draw(curves, asked.usable_bytes, colours=sys.stdout.isatty())}")
    if svg:
        write_svg(
            svg, f"{model.name}: {ask.weights} weights, sessions of {ask.tokens} tokens", curves, asked.usable_bytes
        )
    if exit_code and asked.fits is False:
        raise typer.Exit(Exit.NO)


def _all(shape: ModelShape, ask: Ask, weights: list[str], kv: list[str]) -> budget_view.Fits:
    # Weights whose size was said are of one dtype: the others would be guesses.
    rows = [ask.weights] if ask.weights_bytes is not None else weights
    return {(w, k): _fit(shape, replace(ask, weights=w, kv_cache=k)) for w in rows for k in kv}


def _fit(shape: ModelShape, ask: Ask) -> Fit | str:
    try:
        return reckon(shape, ask)
    except ValueError as error:
        return str(error)


def _curves(shape: ModelShape, asked: Fit, fits: budget_view.Fits) -> list[Curve]:
    """The asked precision first, then its other KV dtypes; those that cost the same share a curve."""
    same = [fit for (w, _), fit in fits.items() if w == asked.ask.weights and isinstance(fit, Fit)]
    by_cost: dict[float, list[Fit]] = {asked.kv_bytes_per_session: []}
    for fit in same:
        by_cost.setdefault(fit.kv_bytes_per_session, []).append(fit)
    most = max(1, round(1.25 * max(asked.ask.sessions, asked.max_sessions or 0)))
    return [
        Curve(", ".join(f.ask.kv_cache for f in alike), sweep(shape, alike[0].ask, most), alike[0].max_sessions)
        for alike in by_cost.values()
    ]
