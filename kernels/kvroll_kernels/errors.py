"""The typed refusals of the kernels package."""


class KernelsUnavailableError(RuntimeError):
    """The implementation that was asked for is not present here; the message says how to get it."""
