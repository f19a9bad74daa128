"""What makes a worker stop before it serves: the message says what was expected, what was found and what to do."""


class ConfigError(Exception):
    """The flags or the environment name something that cannot be run; the process exits with code 2."""
