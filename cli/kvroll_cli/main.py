"""The verbs. What a later version adds is absent here, not a stub."""

import sys
from collections.abc import Callable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any

import typer

from kvroll_cli.advise_verb import advise
from kvroll_cli.budget_verb import budget
from kvroll_cli.errors import CliError
from kvroll_cli.output import Exit, ExitCodeOption, Output, OutputOption, console, show
from kvroll_cli.wall_verb import wall
from kvroll_core.formats import FormatNotBuiltError, UnknownFormatError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Change the precision of a live LLM fleet and keep its sessions. Also `kubectl kvroll`.",
)


Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; by default the kubeconfig's.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Pools of every namespace.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Name of the InferencePool.")]


def _cluster(namespace: str | None, context: str | None, *, all_namespaces: bool = False) -> Any:
    # Imported here: the Kubernetes client takes a second to import, which `--help` and `budget` need not pay.
    from kvroll_cli.cluster import Cluster

    return Cluster.connect(namespace=namespace, all_namespaces=all_namespaces, context=context)


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
    from kvroll_cli.watch import watch_view

    if watch and output is not Output.TABLE:
        raise CliError(
            f"expected --watch or --output {output}, found both: watch objects with `kubectl get kvpool -w -o {output}`"
        )
    cluster = _cluster(namespace, context, all_namespaces=all_namespaces)

    def view() -> Any:
        found = take(cluster, pool)
        return status_view.details(found[0]) if len(found) == 1 else status_view.overview(found)

    if output is not Output.TABLE:
        show(output, {"pools": [found.to_json() for found in take(cluster, pool)]}, view)
        return

    if watch:
        watch_view(view, console(), interval_seconds=interval)
    else:
        console().print(view())


@app.command()
def history(
    pool: PoolArgument, output: OutputOption = Output.TABLE, namespace: Namespace = None, context: Context = None
) -> None:
    """List the revisions of a pool: precision, rollout, the last good one, the failed ones."""
    from kvroll_cli import history_view

    cluster = _cluster(namespace, context)
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
        found = plan_verb.of_file(file, lambda where: _cluster(namespace or where, context))
    else:
        found = plan_verb.of_pool(_cluster(namespace, context), str(pool))
    show(output, found.to_json(), lambda: plan_view.plan_view(found))
    if exit_code and found.plan.blockers:
        raise typer.Exit(Exit.NO)


@app.command()
def pause(pool: PoolArgument, namespace: Namespace = None, context: Context = None) -> None:
    """Hold the rollout: no group enters it; drains under way end. The spec is not touched."""
    _ask("pause", pool, namespace, context)


@app.command()
def resume(pool: PoolArgument, namespace: Namespace = None, context: Context = None) -> None:
    """Let a held rollout go on."""
    _ask("resume", pool, namespace, context)


@app.command()
def approve(pool: PoolArgument, namespace: Namespace = None, context: Context = None) -> None:
    """Let a rollout begin that waits for approval (`rollout.approval: Plan`); `kvroll plan POOL` shows its price."""
    _ask("approve", pool, namespace, context)


@app.command()
def abort(pool: PoolArgument, namespace: Namespace = None, context: Context = None) -> None:
    """End the rollout: groups that have changed stay, a group under way goes back, and the pool holds there."""
    _ask("abort", pool, namespace, context)


@app.command()
def rollback(pool: PoolArgument, namespace: Namespace = None, context: Context = None) -> None:
    """End the rollout and go back to the last good revision, sessions and all."""
    _ask("rollback", pool, namespace, context)


@app.command()
def retry(pool: PoolArgument, namespace: Namespace = None, context: Context = None) -> None:
    """Try the revision of the spec again after its rollout failed or was ended."""
    from kvroll_cli import history_view

    cluster = _cluster(namespace, context)
    cluster.pool(pool)
    failed = history_view.failed_rollout(cluster.revisions(pool))
    if failed is None:
        raise CliError(f"expected a failed or ended rollout of {pool} to retry, found none")
    _request(cluster, "retry", pool, failed)


def _ask(verb: str, pool: str, namespace: str | None, context: str | None) -> None:
    from kvroll_cli.snapshot import Snapshot

    cluster = _cluster(namespace, context)
    rollout = Snapshot.of(cluster.pool(pool), []).status.rollout
    if not rollout.id or rollout.phase == "Complete":
        raise CliError(f"expected a rollout of {pool} to {verb}, found {rollout.phase or 'none yet'}")
    if verb == "approve" and rollout.phase != "AwaitingApproval":
        raise CliError(f"expected a rollout of {pool} that waits for approval, found {rollout.phase}")
    _request(cluster, verb, pool, rollout.id)


def _request(cluster: Any, verb: str, pool: str, rollout_id: str) -> None:
    cluster.request(pool, verb, rollout_id)
    typer.echo(f"asked the operator to {verb} rollout {rollout_id} of {pool}; see: kvroll status {pool}")


app.command()(budget)
app.command()(wall)
app.command()(advise)


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
    optional = {"--max-model-len": max_model_len, "--threads": threads}
    optional |= {"--weight-block-size": weight_block, "--head": head, "--kv-skip-layers": kv_skip_layers}
    for flag, value in optional.items():
        flags += [flag, str(value)] if value is not None else []
    name = model_name or model.resolve().name
    options = serving.ServeOptions(model, name, weights, kv_cache, host, port, drain_seconds, tuple(flags))
    raise typer.Exit(serving.run(options))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(installed_version("kvroll"))


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
