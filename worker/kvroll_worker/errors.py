"""What makes a worker stop: before it serves, or because its engine's state is unknown."""


class ConfigError(Exception):
    """The flags or the environment name something that cannot be run; the process exits with code 2."""


class EngineFault(Exception):
    """The engine's state is unknown (a kernel failed in mid-step, books that do not balance): no session can be trusted any more.

    No boundary around a session catches it: the process ends, and gateways replay what it held.
    """
