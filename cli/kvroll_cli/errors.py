"""What the command line refuses, in a sentence and without a traceback."""


class CliError(Exception):
    """The message says what was expected, what was found and what to do. Exit code 1: what was asked for is not possible here and now."""


class UsageError(CliError):
    """The command line by itself is wrong, whatever this machine and the cluster hold: exit code 2."""
