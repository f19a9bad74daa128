"""The flags of `kvroll up` and `kvroll down`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from kvroll_cli.errors import CliError
from kvroll_cli.output import Output, OutputOption, show

State = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="DIR", envvar="KVROLL_STATE", help="State folder; by default ~/.local/state/kvroll/up."
    ),
]
_KEEP = "Keep pools and logs for the next `kvroll up`."


def up(
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="InferencePools to run.")] = None,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="DIR", help="Or: a pool of this model folder.")
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, help="Workers of --model.")] = 1,
    weights: Annotated[str, typer.Option(help="Weight dtype of --model.")] = "bf16",
    kv_cache: Annotated[str, typer.Option("--kv-cache", help="KV-cache dtype of --model.")] = "bf16",
    host: Annotated[str, typer.Option(help="Address of the gateway.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the gateway, by default 8000; 0: a free one.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=0, help="Devices that this machine offers; by default all that its driver names.")
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Memory that it offers, such as 16GiB; by default all.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="CPUs that it offers; by default all.")] = None,
    drain_seconds: Annotated[float, typer.Option(min=0, help="How long the end waits for open answers.")] = 5.0,
    keep_state: Annotated[bool, typer.Option("--keep-state", help=_KEEP)] = False,
    state: State = None,
) -> None:
    """Run pools on this machine without Kubernetes, as processes of yours. Ctrl-C ends everything."""
    if file is not None and model is not None:
        raise CliError("expected --file or --model, found both")
    from kvroll_cli.quantity import parse_bytes
    from kvroll_cli.up import run

    asked = run.Asked(
        file=file, model=model, replicas=replicas, weights=weights, kv_cache=kv_cache, host=host, port=port, devices=devices,
        memory_bytes=None if memory is None else parse_bytes(memory), cpus=cpus, drain_seconds=drain_seconds, keep_state=keep_state,
        state=state,
    )  # fmt: skip
    raise typer.Exit(run.up(asked))


def down(
    keep_state: Annotated[bool, typer.Option("--keep-state", help=_KEEP)] = False,
    grace_seconds: Annotated[float, typer.Option(min=0, help="How long orphans of a killed `kvroll up` have.")] = 5.0,
    timeout_seconds: Annotated[float, typer.Option(min=1, help="How long a `kvroll up` that lives has.")] = 60.0,
    output: OutputOption = Output.TABLE,
    state: State = None,
) -> None:
    """End what `kvroll up` runs, from any shell, also after it was killed; nothing of it is left."""
    from kvroll_local.up import ending
    from kvroll_local.up.errors import UpError
    from kvroll_local.up.folder import StateFolder, default_state

    folder = StateFolder(state or default_state())
    try:
        ended = ending.end(folder, keep_state=keep_state, grace_seconds=grace_seconds, timeout_seconds=timeout_seconds)
    except UpError as error:
        raise CliError(str(error)) from error
    show(output, ended.document(), lambda: Text(str(ended)))
