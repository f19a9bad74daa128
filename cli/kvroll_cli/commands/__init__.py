"""The commands of `kvroll`: each verb a file, or a folder of `verb`, `view` and what else it takes.

Lives here: a function whose parameters are the verb's arguments and whose docstring is its `--help`; what arguments may not be together
(`UsageError`, exit code 2); and what the verb prints. At the top of a `verb` file stand imports of typer and of the words of arguments
(`output`, `kube.pools`) alone; what does the work is imported inside the function, so that `--help` and Tab cost nothing. Only
`kvroll_cli.main` imports this package, and it too only the verb that is asked for. `demo`, `dashboard` and `up` are verbs with a package
of their own.
"""
