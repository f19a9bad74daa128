"""`kvroll serve`."""

from pathlib import Path
from typing import Annotated

import typer


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
    from kvroll_cli.commands.serve import child

    flags = ["--kv-memory", kv_memory, "--max-sessions", str(max_sessions), "--http-port", str(metrics_port)]
    optional: dict[str, int | str | None] = {"--max-model-len": max_model_len, "--threads": threads}
    optional |= {"--weight-block-size": weight_block, "--head": head, "--kv-skip-layers": kv_skip_layers}
    for flag, value in optional.items():
        flags += [flag, str(value)] if value is not None else []
    name = model_name or model.resolve().name
    options = child.ServeOptions(model, name, weights, kv_cache, host, port, drain_seconds, tuple(flags))
    raise typer.Exit(child.run(options))
