"""`kvroll advise`: what to turn on for a traffic, in which order."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from kvroll_cli.commands.advise.trace import read_trace
from kvroll_cli.commands.wall.verb import engines_of_pages, judge_one
from kvroll_cli.errors import CliError, UsageError
from kvroll_cli.kube.pools import Context, Namespace
from kvroll_cli.model_shape import read_stored
from kvroll_cli.output import Exit, ExitCodeOption, Output, OutputOption, show
from kvroll_cli.quantity import parse_bytes
from kvroll_cli.table import table_of
from kvroll_core.advise import AdvisedStep, LeverDecision, Profile, Room, TraceError, helps, order, profile_of
from kvroll_core.wall import Found, Machine, Told, pooled

EVERY_SECONDS = 1.0
_STYLE = {LeverDecision.ON: "bold green", LeverDecision.UNKNOWN: "yellow"}


def advise(
    pool: Annotated[
        str | None, typer.Argument(metavar="[POOL]", help="An InferencePool: its workers, through the API server.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Requests as JSON lines (also Mooncake's), BurstGPT's CSV, or a result of vllm bench serve.",
        ),
    ] = None,
    metrics_url: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Metrics of a live vLLM or worker; again for each of a pool."),
    ] = None,
    model: Annotated[Path | None, typer.Option(metavar="PATH", help="Model folder or config.json.")] = None,
    device_memory: Annotated[
        str | None, typer.Option("--device-memory", "-m", metavar="BYTES", help="Memory of one worker; for a trace.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Present weight dtype.")] = None,
    kv: Annotated[str | None, typer.Option("--kv", help="Present KV-cache dtype.")] = None,
    seconds_per_token: Annotated[
        float | None, typer.Option(min=0, help="Of an answer, where the trace has no durations.")
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds to look at a live engine.")] = 10.0,
    device_bandwidth: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Measured bytes a second of a live engine's device.")
    ] = None,
    device_flops: Annotated[
        str | None, typer.Option(metavar="FLOPS", help="Measured operations a second of a live engine's device.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="Devices that a live engine spans.")] = 1,
    engine_version: Annotated[
        str, typer.Option(metavar="VERSION", help="Of a live engine: names dtypes that only newer ones have, too.")
    ] = "",
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Say what to turn on for a traffic, in order: prefix cache, KV dtype, weights, replicas; or that nothing helps.
    With --trace or --metrics-url it needs no cluster.
    """
    asked = [name for name, value in (("a POOL", pool), ("--trace", trace), ("--metrics-url", metrics_url)) if value]
    if len(asked) != 1:
        raise UsageError(f"expected one of a POOL, --trace and --metrics-url, found {' and '.join(asked) or 'none'}")
    shape, checkpoint = read_stored(model) if model else (None, None)
    if trace:
        profile = _profile(trace, seconds_per_token)
        memory = parse_bytes(device_memory) if device_memory else None
        room = Room(shape, weights or "bf16", kv or "bf16", memory) if shape and memory else None
        steps = order(profile, room)
    else:
        machine = Machine(
            parse_bytes(device_bandwidth) if device_bandwidth else None,
            parse_bytes(device_flops) if device_flops else None,
        )
        if pool is not None:
            from kvroll_cli.engines.of_pool import engines_of

            looked = engines_of(pool, namespace, context, seconds=interval, every=EVERY_SECONDS)
            names, samples, shape = looked.names, looked.samples, shape or looked.shape
        else:
            from kvroll_cli.engines.scrape import watch

            names = list(metrics_url or ())
            samples = watch(names, seconds=interval, every=EVERY_SECONDS)
        engines = engines_of_pages(names, samples)
        told = Told(shape, weights, kv, machine, len(engines), devices, version=engine_version, checkpoint=checkpoint)
        profile, steps = _live(engines, told)
    show(output, _document(profile, steps), lambda: _view(profile, steps))
    if exit_code and not helps(steps):
        raise typer.Exit(Exit.NO)


def _profile(trace: Path, seconds_per_token: float | None) -> Profile:
    try:
        return profile_of(read_trace(trace, seconds_per_token=seconds_per_token))
    except TraceError as error:
        raise CliError(f"{trace}: {error}") from error


def _live(engines: Sequence[tuple[str, Found]], told: Told) -> tuple[Profile, tuple[AdvisedStep, ...]]:
    """The traffic of the window, and the order by the wall of the busiest worker."""
    workers = [judge_one(name, engine, told) for name, engine in engines]
    counters = pooled([w.counters for w in workers])
    busiest = max(workers, key=lambda w: w.counters.running + w.counters.waiting)
    tokens = busiest.load.tokens * counters.running if busiest.load else None
    profile = Profile(None, counters.running + counters.waiting, tokens, counters.prefix_hit_rate)
    return profile, order(profile, None, busiest.verdict, busiest.advice)


def _document(profile: Profile, steps: Sequence[AdvisedStep]) -> dict[str, Any]:
    return {
        "traffic": asdict(profile),
        "steps": [asdict(step) | {"decision": str(step.decision)} for step in steps],
        "helps": helps(tuple(steps)),
    }


def _view(profile: Profile, steps: Sequence[AdvisedStep]) -> RenderableType:
    table = table_of("", "LEVER", "DO", "TO", "BECAUSE")
    for number, step in enumerate(steps, 1):
        decision = Text(str(step.decision), style=_STYLE.get(step.decision, ""))
        table.add_row(str(number), step.lever, decision, step.to, step.why)
    parts: list[RenderableType] = [_traffic(profile), "", table]
    if not helps(tuple(steps)) and not any(s.decision is LeverDecision.UNKNOWN for s in steps):
        parts += ["", Text("nothing here will help this traffic")]
    return Group(*parts)


def _traffic(profile: Profile) -> str:
    said = []
    if profile.requests is not None:
        said.append(f"{profile.requests} requests")
    # A live engine was watched for seconds: its peak is not known.
    if profile.peak_sessions is not None:
        count = f"{profile.peak_sessions:.0f} sessions"
        said.append(f"at most {count} at once" if profile.requests is not None else f"{count} now, those that wait too")
    if profile.peak_tokens is not None:
        said.append(f"{profile.peak_tokens:.0f} tokens held at once")
    if profile.overlap is not None:
        said.append(f"{profile.overlap:.1%} of prompt tokens shared")
    if profile.prompt and profile.output:
        said.append(f"prompts {profile.prompt.p50} / {profile.prompt.p95} tokens (median / p95)")
        said.append(f"answers {profile.output.p50} / {profile.output.p95}")
    return ", ".join(said)
