"""The one error that the launcher shows without a traceback."""


class ClusterError(Exception):
    """Says what was expected, what was found and what to do; the launcher prints it and exits 1."""
