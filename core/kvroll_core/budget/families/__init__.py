"""What a family of models keeps in its cache, by `model_type`: the list of those that we can count, how each layer's kind is read from
config.json, and what a layer of that kind keeps.

Data and pure reading; no bytes. `kvroll_core.budget` alone imports it.
"""

from kvroll_core.budget.families.reading import Read, read_model
from kvroll_core.budget.families.settings import Settings, ShapeError
from kvroll_core.budget.families.table import ENCODER_DECODERS, ENCODERS, FAMILIES, REFUSED, Family

__all__ = [
    "ENCODERS",
    "ENCODER_DECODERS",
    "FAMILIES",
    "REFUSED",
    "Family",
    "Read",
    "Settings",
    "ShapeError",
    "read_model",
]
