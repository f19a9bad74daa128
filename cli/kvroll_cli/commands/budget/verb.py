"""`kvroll budget`: what fits into a device, before anything is loaded."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kvroll_cli.commands.budget import view
from kvroll_cli.commands.budget.ask import AUTO, DEFAULT_PAGE_TOKENS, BudgetQuestion, Options, question
from kvroll_cli.commands.budget.chart import Curve, draw, write_svg
from kvroll_cli.errors import UsageError
from kvroll_cli.model_shape import read_checkpoint
from kvroll_cli.output import Exit, ExitCodeOption, Output, OutputOption, show
from kvroll_core.budget import Ask, Fit, ModelShape, reckon, sweep
from kvroll_core.precision.formats import HEAD_SAME, KV_FORMATS, WEIGHT_BLOCK, WEIGHT_FORMATS

_MOST = 1 << 40


def budget(
    model: Annotated[
        Path,
        typer.Option(metavar="PATH", help="A model folder, its config.json, or hf://org/name (config and headers)."),
    ],
    device_memory: Annotated[
        str | None, typer.Option("--device-memory", "-m", metavar="BYTES", help="Memory of one device, such as 80GiB.")
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, max=_MOST, help="Sessions at once, at the peak.")] = 1,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, max=_MOST, help="Tokens of a session, prompt and answer; by default the most."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Only this weight dtype; by default the checkpoint's own.")
    ] = None,
    weight_block: Annotated[
        int, typer.Option("--weight-block-size", help="Inputs that share a scale of int4: 32, 64 or 128.")
    ] = WEIGHT_BLOCK,
    head: Annotated[str, typer.Option(help="The output head: Same or int8.")] = HEAD_SAME,
    kv: Annotated[
        str | None, typer.Option("--kv", help="Only this KV-cache dtype; auto, the default: the checkpoint's.")
    ] = None,
    skip_layers: Annotated[
        str, typer.Option(metavar="0,1,29", help="Layers whose KV stays bf16 (precision.skipLayers).")
    ] = "",
    tensor_parallel: Annotated[
        int, typer.Option("--tp", min=1, max=1024, help="Tensor-parallel ranks: they share each layer.")
    ] = 1,
    pipeline_parallel: Annotated[
        int, typer.Option("--pp", min=1, max=1024, help="Pipeline stages: they share the layers.")
    ] = 1,
    data_parallel: Annotated[
        int, typer.Option("--dp", min=1, max=65536, help="Data-parallel replicas: they share the sessions.")
    ] = 1,
    block_size: Annotated[
        int, typer.Option("--block-size", min=1, max=65536, help="Tokens of a page; vLLM's default is 16.")
    ] = DEFAULT_PAGE_TOKENS,
    kv_memory: Annotated[
        str | None,
        typer.Option("--kv-memory", metavar="BYTES", help="KV pool of one device, instead of what the device leaves."),
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option("--gpu-memory-utilization", help="Share of the device that the engine takes.")
    ] = None,
    headroom: Annotated[
        float | None, typer.Option(help="Share of the device that is left free; by default 0.1.")
    ] = None,
    assume: Annotated[
        str | None,
        typer.Option(metavar="full-attention", help="Reckon an unknown family as plain full attention: a bound."),
    ] = None,
    with_sweep: Annotated[
        bool, typer.Option("--sweep", help="Draw memory over concurrency, up to the ceiling.")
    ] = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write that chart as SVG, too.")] = None,
    batch_tokens: Annotated[
        int, typer.Option(min=1, max=_MOST, help="Tokens of one engine step, for the activations.")
    ] = 256,
    residual_tokens: Annotated[
        int, typer.Option(min=0, max=1 << 24, help="Newest tokens that kivi4 and kivi2 keep in 16 bits.")
    ] = 128,
    sinks: Annotated[
        int, typer.Option(min=0, max=1 << 24, help="First tokens that layers with a window keep besides.")
    ] = 0,
    weights_bytes: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Size of the weights, instead of what the config comes to.")
    ] = None,
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Reckon what fits into a device at every precision: weights, KV, sessions, and where the ceiling is. Needs no
    cluster.
    """
    options = Options(
        sessions=sessions, tokens=tokens, device_memory=device_memory, weights=weights, weight_block=weight_block, head=head,
        kv=kv or AUTO, skip_layers=skip_layers, headroom=headroom, gpu_memory_utilization=gpu_memory_utilization,
        batch_tokens=batch_tokens, residual_tokens=residual_tokens, sinks=sinks, weights_bytes=weights_bytes,
        tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel, data_parallel=data_parallel, block_size=block_size,
        kv_memory=kv_memory, assume=assume,
    )  # fmt: skip
    asked = question(read_checkpoint(model), options)
    fit = _answer(asked)
    fits = _all(asked, [weights] if weights else list(WEIGHT_FORMATS), [asked.ask.kv_cache] if kv else list(KV_FORMATS))
    document = view.document(asked, fit, fits)
    curves = _curves(asked, fit, fits) if with_sweep or svg else []
    if curves:
        document = view.with_sweep(document, curves[0].points)
    if svg:
        title = f"{model.name}: {asked.weights_name} weights, sessions of {asked.ask.tokens} tokens"
        write_svg(svg, title, curves, fit.usable_bytes)
    show(output, document, lambda: view.budget_view(asked, fit, fits))
    if with_sweep and output is Output.TABLE:
        typer.echo(f"\n{draw(curves, fit.usable_bytes, colours=sys.stdout.isatty())}")
    if exit_code and fit.fits is False:
        raise typer.Exit(Exit.NO)


def _answer(asked: BudgetQuestion) -> Fit:
    if not asked.weights_known and asked.ask.device_bytes is not None and asked.ask.kv_memory_bytes is None:
        raise UsageError(f"expected the size of the weights to say what a device leaves; {asked.weights_source}")
    try:
        return reckon(asked.shape, asked.ask)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _all(asked: BudgetQuestion, weights: list[str], kv: list[str]) -> view.Fits:
    # Weights whose size was said or read are of one dtype: the others would be guesses.
    rows = [asked.ask.weights] if asked.weights_fixed or not asked.weights_known else weights
    return {(w, k): _fit(asked.shape, replace(asked.ask, weights=w, kv_cache=k)) for w in rows for k in kv}


def _fit(shape: ModelShape, ask: Ask) -> Fit | str:
    try:
        return reckon(shape, ask)
    except ValueError as error:
        return str(error)


def _curves(asked: BudgetQuestion, found: Fit, fits: view.Fits) -> list[Curve]:
    """The asked precision first, then its other KV dtypes; those that cost the same share a curve."""
    same = [fit for (w, _), fit in fits.items() if w == found.ask.weights and isinstance(fit, Fit)]
    by_cost: dict[float, list[Fit]] = {found.kv_bytes_per_session: []}
    for fit in same:
        by_cost.setdefault(fit.kv_bytes_per_session, []).append(fit)
    most = max(1, round(1.25 * max(found.ask.sessions, found.max_sessions or 0)))
    return [
        Curve(", ".join(f.ask.kv_cache for f in alike), sweep(asked.shape, alike[0].ask, most), alike[0].max_sessions)
        for alike in by_cost.values()
        if alike
    ]
