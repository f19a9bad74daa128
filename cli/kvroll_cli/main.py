"""The verbs. What a later version adds is absent here, not a stub."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from kvroll_cli import request_verbs
from kvroll_cli.advise_verb import advise
from kvroll_cli.budget_verb import budget
from kvroll_cli.errors import CliError
from kvroll_cli.gate_verb import gate
from kvroll_cli.output import Exit, ExitCodeOption, Output, OutputOption, console, show
from kvroll_cli.pools import AllNamespaces, Context, Namespace, PoolArgument, cluster_of
from kvroll_cli.wall_verb import wall
from kvroll_core.formats import FormatNotBuiltError, UnknownFormatError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Change the precision of a live LLM fleet and keep its sessions. Also `kubectl kvroll`.",
)


@app.command()
def status(
    pool: Annotated[
        str | None, typer.Argument(metavar="[POOL]", help="One pool in detail; all of them without.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep the view open and up to date; Ctrl-C ends it.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between looks with --watch.")] = 1.0,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    context: Context = None,
) -> None:
    """Show pools: precision, groups, sessions, drains, and what they wait for."""
    from kvroll_cli import status_view
    from kvroll_cli.snapshot import take
    from kvroll_cli.status_document import status_document
    from kvroll_cli.watch import watch_view

    if watch and output is not Output.TABLE:
        raise CliError(
            f"expected --watch or --output {output}, found both: watch objects with `kubectl get kvpool -w -o {output}`"
        )
    cluster = cluster_of(namespace, context, all_namespaces=all_namespaces)

    screen = console()

    def view() -> Any:
        found = take(cluster, pool)
        # A log gets each change once, so nothing may stand in it that passes by itself.
        now = datetime.now(UTC) if screen.is_terminal or not watch else None
        return status_view.details(found[0], now) if len(found) == 1 else status_view.overview(found)

    if output is not Output.TABLE:
        show(output, {"pools": [status_document(found, datetime.now(UTC)) for found in take(cluster, pool)]}, view)
    elif watch:
        watch_view(view, screen, interval_seconds=interval)
    else:
        screen.print(view())


@app.command()
def history(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """List the revisions of a pool: precision, rollout, the last good one, the failed ones."""
    from kvroll_cli import history_view

    cluster = cluster_of(namespace, context)
    cluster.pool(pool)
    revisions = cluster.revisions(pool)
    show(output, {"revisions": history_view.rows(revisions)}, lambda: history_view.history(revisions))


@app.command()
def plan(
    pool: Annotated[
        str | None, typer.Argument(metavar="[POOL]", help="The rollout of this pool: its price, and what it came to.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Price this InferencePool; nothing is applied.")
    ] = None,
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Price a change of precision before anything moves: sessions, bytes, tokens, devices, time, and what is gained."""
    from kvroll_cli import plan_verb, plan_view

    if (pool is None) == (file is None):
        raise CliError(f"expected POOL or --file, found {'neither' if pool is None else 'both'}")
    if file is not None:
        found = plan_verb.of_file(file, lambda where: cluster_of(namespace or where, context))
    else:
        found = plan_verb.of_pool(cluster_of(namespace, context), str(pool))
    show(output, found.to_json(), lambda: plan_view.plan_view(found))
    if exit_code and found.plan.blockers:
        raise typer.Exit(Exit.NO)


@app.command()
def dashboard(
    pool: Annotated[str | None, typer.Argument(metavar="[POOL]", help="One pool; all of them without.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0: a free one.")] = 8790,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between looks at the cluster.")] = 1.0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    context: Context = None,
) -> None:
    """Show pools live on a local page that only reads; Ctrl-C ends it."""
    from kvroll_cli.dashboard import serving
    from kvroll_cli.dashboard.feed import ClusterLook
    from kvroll_cli.listener import bound

    look = ClusterLook(cluster_of(namespace, context, all_namespaces=all_namespaces), pool)
    refusal = look()["problem"]
    if refusal and not look.has_seen:
        raise CliError(refusal)
    listener = bound(serving.HOST, port)
    typer.echo(f"showing pools at {serving.address(listener)}; Ctrl-C ends it")
    if open_browser:
        typer.launch(serving.address(listener))
    serving.run(look, listener, interval)


for verb in request_verbs.VERBS:
    app.command()(verb)
app.command()(budget)
app.command()(wall)
app.command()(advise)
app.command()(gate)


@app.command()
def serve(
    model: Annotated[Path, typer.Option("--model", metavar="DIR", help="Folder with config.json and safetensors.")],
    model_name: Annotated[str | None, typer.Option(help="The name in requests; by default the folder's.")] = None,
    weights: Annotated[str, typer.Option(help="Weight dtype.")] = "bf16",
    weight_block: Annotated[
        int | None, typer.Option("--weight-block-size", help="Inputs that share a scale of int4; by default 64.")
    ] = None,
    head: Annotated[str | None, typer.Option(help="int8: the output head in int8 too.")] = None,
    kv_cache: Annotated[str, typer.Option("--kv-cache", help="KV-cache dtype.")] = "bf16",
    kv_skip_layers: Annotated[str | None, typer.Option(help="Layers whose KV stays bf16, such as 0,1,29.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free one.")] = 8000,
    kv_memory: Annotated[str, typer.Option(help="Memory for KV pages, such as 2GiB.")] = "256MiB",
    max_model_len: Annotated[int | None, typer.Option(min=2, help="Tokens of the longest session.")] = None,
    max_sessions: Annotated[int, typer.Option(min=1, help="Sessions at once.")] = 64,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; by default all that are granted.")] = None,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the worker's health and metrics; 0: a free one.")
    ] = 0,
    drain_seconds: Annotated[float, typer.Option(min=0, help="How long Ctrl-C waits for open answers.")] = 5.0,
) -> None:
    """Serve a model on this machine, gateway and worker in one command: the OpenAI API, without a cluster."""
    from kvroll_cli import serve as serving

    flags = ["--kv-memory", kv_memory, "--max-sessions", str(max_sessions), "--http-port", str(metrics_port)]
    optional: dict[str, int | str | None] = {"--max-model-len": max_model_len, "--threads": threads}
    optional |= {"--weight-block-size": weight_block, "--head": head, "--kv-skip-layers": kv_skip_layers}
    for flag, value in optional.items():
        flags += [flag, str(value)] if value is not None else []
    name = model_name or model.resolve().name
    options = serving.ServeOptions(model, name, weights, kv_cache, host, port, drain_seconds, tuple(flags))
    raise typer.Exit(serving.run(options))


@app.command()
def version(output: OutputOption = Output.TABLE) -> None:
    """Print the version."""
    found = installed_version("kvroll")
    show(output, {"version": found}, lambda: Text(found))


def run(application: Callable[[], Any]) -> int:
    """Runs it; what we refuse is one line on stderr and exit code 1."""
    try:
        application()
    except (CliError, FormatNotBuiltError, UnknownFormatError) as error:
        print(f"kvroll: {error}", file=sys.stderr)
        return 1
    return 0


def main() -> None:
    """Entry of the console scripts `kvroll` and `kubectl-kvroll`."""
    sys.exit(run(app))
