"""The table of verbs, and how a refusal leaves. What a later version adds is absent here, not a stub."""

import sys
from collections.abc import Callable
from typing import Any

import typer

from kvroll_cli.errors import CliError, UsageError
from kvroll_cli.lazy import Verb, VerbGroup
from kvroll_core.precision.formats import FormatNotBuiltError, UnknownFormatError

VERBS = (
    Verb(
        "status",
        "kvroll_cli.commands.status.verb:status",
        "Show pools: precision, groups, sessions, what they wait for.",
    ),
    Verb("history", "kvroll_cli.commands.history.verb:history", "List the revisions of a pool."),
    Verb("plan", "kvroll_cli.commands.plan.verb:plan", "Price a change of precision before anything moves."),
    Verb("dashboard", "kvroll_cli.dashboard.verb:dashboard", "Show pools live on a local page."),
    Verb("pause", "kvroll_cli.commands.requests:pause", "Hold the rollout: no group enters it."),
    Verb("resume", "kvroll_cli.commands.requests:resume", "Let a held rollout go on."),
    Verb("approve", "kvroll_cli.commands.requests:approve", "Let a rollout begin that waits for approval."),
    Verb("abort", "kvroll_cli.commands.requests:abort", "End the rollout; groups that have changed stay."),
    Verb("rollback", "kvroll_cli.commands.requests:rollback", "Go back to the last good revision, sessions and all."),
    Verb("retry", "kvroll_cli.commands.requests:retry", "Try the revision of the spec again."),
    Verb("drain", "kvroll_cli.commands.requests:drain", "Move a worker's sessions off and replace it."),
    Verb("budget", "kvroll_cli.commands.budget.verb:budget", "Reckon what fits into a device at every precision."),
    Verb("wall", "kvroll_cli.commands.wall.verb:wall", "Say what an engine or a pool is short of."),
    Verb("advise", "kvroll_cli.commands.advise.verb:advise", "Say what to turn on for a traffic, in order."),
    Verb("gate", "kvroll_cli.commands.gate.verb:gate", "Measure a candidate's quality against a baseline."),
    Verb("demo", "kvroll_cli.demo.verb:demo", "Change a live pool's precision twice while chats stream."),
    Verb("serve", "kvroll_cli.commands.serve.verb:serve", "Serve a model on this machine, without a cluster."),
    Verb("up", "kvroll_cli.up.verb:up", "Run pools on this machine without Kubernetes."),
    Verb("down", "kvroll_cli.up.verb:down", "End what `kvroll up` runs."),
    Verb("version", "kvroll_cli.commands.version:version", "Print the version."),
)


class _Kvroll(VerbGroup):
    verbs = VERBS


app = typer.Typer(cls=_Kvroll, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def _kvroll() -> None:
    """Change the precision of a live LLM fleet and keep its sessions. Also `kubectl kvroll`."""


def run(application: Callable[[], Any]) -> int:
    """Runs it; what we refuse is one line on stderr and exit code 1, or 2 where the command line by itself is wrong."""
    try:
        application()
    except CliError as error:
        return _refuse(error, 2 if isinstance(error, UsageError) else 1)
    except (FormatNotBuiltError, UnknownFormatError) as error:  # a file that names one is a CliError
        return _refuse(error, 2)
    except OSError as error:
        # What a verb foresees names what was expected; disks that fill up and the like nobody foresees.
        return _refuse(error, 1)
    return 0


def _refuse(error: Exception, code: int) -> int:
    print(f"kvroll: {error}", file=sys.stderr)
    return code


def main() -> None:
    """Entry of the console scripts `kvroll` and `kubectl-kvroll`."""
    sys.exit(run(app))
