"""The command line, `kvroll` and `kubectl kvroll`: looks at pools, asks the operator for a decision, and reckons
before a change.

Lives here: parsing arguments, reading the API server, drawing tables. No decision about a rollout is made here: verbs
write one annotation, and never `spec`. Imports `kvroll_core` and `kvroll_operator.api`; nothing imports this package.

A new verb is a file or a folder in `commands/`: a function whose parameters are the arguments, with the docstring as its help, and a line
in `VERBS` of `main.py` that names it with one line for the list. At its top it imports typer, `output` and `kube.pools`; everything else
inside the function (a test looks at what `--help` of each verb imports). It raises `UsageError` for arguments that are wrong by
themselves (exit code 2) and `CliError` for what is not possible (exit code 1), prints by `show`, and stands in the table of docs/cli.md.
"""
