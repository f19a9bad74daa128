"""`kvroll gate`: whether one OpenAI server keeps the quality of another, by the user's own bars."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvroll_cli.errors import CliError
from kvroll_cli.output import Exit, Output, OutputOption, show
from kvroll_core.gate import (
    Answer,
    Arm,
    Ask,
    Bar,
    Dataset,
    Evidence,
    GateError,
    GateVerdict,
    Trial,
    TrialPolicy,
    bundled,
    parse,
)
from kvroll_core.gate.report import markdown

if TYPE_CHECKING:
    from kvroll_cli.commands.gate.server import ScoringServer

_EXITS = {GateVerdict.PASS: Exit.DONE, GateVerdict.FAIL: Exit.REFUSED, GateVerdict.INCONCLUSIVE: Exit.NO}
Scorers = dict[Arm, Callable[[Ask], Answer]]


def gate(
    baseline: Annotated[str, typer.Option(metavar="URL", help="The server whose quality is to be kept.")],
    candidate: Annotated[str, typer.Option(metavar="URL", help="The server that is to be judged.")],
    bar: Annotated[
        list[str], typer.Option(metavar="BAR", help="Such as 'top1Agreement>=0.97' or 'klP99<=0.1'; again for each.")
    ],
    dataset: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON Lines of texts and tasks; by default a small one of ours.")
    ] = None,
    min_samples: Annotated[
        int, typer.Option(min=1, help="Prompts of each kind before an early verdict.")
    ] = TrialPolicy.min_samples,
    max_samples: Annotated[int | None, typer.Option(min=1, help="Most prompts of each kind; by default all.")] = None,
    alpha: Annotated[float, typer.Option(help="Allowed probability of a false pass.")] = TrialPolicy.alpha,
    beta: Annotated[float, typer.Option(help="Allowed probability of a false fail.")] = TrialPolicy.beta,
    as_sample: Annotated[
        bool, typer.Option("--as-sample", help="Judge all prompts like the dataset's, not the dataset; needs hundreds.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the order and the haystacks.")] = 0,
    top_k: Annotated[
        int, typer.Option(min=1, help="Likeliest tokens to compare; servers allow 20 or fewer.")
    ] = TrialPolicy.top_k,
    parallel: Annotated[int, typer.Option(min=1, help="Prompts under way at once.")] = 4,
    model: Annotated[str | None, typer.Option(help="Model to ask for, where a server has several.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Bearer key of both servers.")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the evidence as Markdown, or .json.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure a candidate against a baseline, prompt by prompt, until your bars are met or missed. Leaves with 0 for
    Pass, 1 for Fail, 3 for Inconclusive.
    """
    try:
        policy = TrialPolicy(alpha, beta, min_samples, max_samples, top_k=top_k, as_sample=as_sample)
        trial = Trial(_dataset(dataset), [Bar.parse(one) for one in bar], policy, seed)
    except GateError as error:
        raise typer.BadParameter(str(error)) from error
    from kvroll_cli.commands.gate.server import ScoringServer
    from kvroll_cli.commands.gate.view import evidence_view

    evidence = _judged(trial, [ScoringServer(url, model, api_key) for url in (baseline, candidate)], parallel)
    if report is not None:
        _write(report, evidence)
    show(output, evidence.to_json(), lambda: evidence_view(evidence))
    raise typer.Exit(_EXITS[evidence.verdict])


def run(trial: Trial, scorers: Scorers, parallel: int, told: Callable[[], None] = lambda: None) -> None:
    """Asks and answers until the trial is decided; `told` is called after each answered round."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(parallel) as pool:
        while not trial.decided:
            batches = list(iter(trial.ask, None))
            under_way = [[pool.submit(scorers[batch.arm], ask) for ask in batch.asks] for batch in batches]
            try:
                for batch, answers in zip(batches, under_way, strict=True):
                    trial.take(batch.id, [answer.result() for answer in answers])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            told()


def _judged(trial: Trial, servers: "Sequence[ScoringServer]", parallel: int) -> Evidence:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    base, found = servers
    scorers: Scorers = {Arm.BASELINE: base.answer, Arm.CONTROL: base.answer, Arm.CANDIDATE: found.answer}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks = {kind: progress.add_task(kind, total=most) for kind, _, most in trial.progress()}

        def told() -> None:
            for kind, done, _ in trial.progress():
                progress.update(tasks[kind], completed=done)

        run(trial, scorers, parallel, told)
    for server in servers:
        server.close()
    return trial.evidence().named(base.name, found.name)


def _dataset(path: Path | None) -> Dataset:
    if path is None:
        return bundled()
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"expected a dataset at {path}, found: {error}") from error


def _write(path: Path, evidence: Evidence) -> None:
    told = json.dumps(evidence.to_json(), indent=2) + "\n" if path.suffix == ".json" else markdown(evidence)
    try:
        path.write_text(told, encoding="utf-8")
    except OSError as error:
        raise CliError(f"expected to write the report to {path}, found: {error}") from error
