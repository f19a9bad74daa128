"""The verbs of the command line, a file each: a function whose parameters are its arguments and whose docstring is its `--help`.

Lives here: arguments, what they may not be together (`UsageError`, exit code 2), and the call of the module that does the
work. At the top of a file stand imports of typer and of the words of arguments (`output`, `pools`) alone; what does the work
is imported inside the function, so that `--help` and Tab cost nothing. Only `kvroll_cli.main` imports this package, and it
too only the verb that is asked for.
"""
