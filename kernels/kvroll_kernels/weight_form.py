"""How a weight is stored, as the kernels tell forms apart."""

from typing import NamedTuple


class WeightForm(NamedTuple):
    """A dtype word, and how many inputs share a scale (0 where a channel has one or none)."""

    kind: str
    block: int = 0
