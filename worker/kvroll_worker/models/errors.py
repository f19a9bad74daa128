"""The typed refusal of a model folder."""


class UnsupportedModelError(ValueError):
    """The model has a feature that this engine does not run; the message names it and what is supported."""
