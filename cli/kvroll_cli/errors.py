"""What the command line refuses, in a sentence and without a traceback."""


class CliError(Exception):
    """The message says what was expected, what was found and what to do."""
