"""What is refused, in a sentence."""


class UpError(Exception):
    """The message says what was expected, what was found and what to do."""
