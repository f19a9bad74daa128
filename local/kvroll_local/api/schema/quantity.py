"""Quantities of resources: `500m`, `1Gi`, `1e3`."""

import re
from decimal import Decimal

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?)")
_UNITS = {"": Decimal(1)} | {
    unit: Decimal(1000) ** power
    for power, unit in zip(range(-3, 7), ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"], strict=True)
}
_UNITS |= {unit: Decimal(1024) ** power for power, unit in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], 1)}


def parse_quantity(text: str) -> Decimal:
    """The amount. Raises ValueError where the text is no quantity."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        raise ValueError(f"expected a quantity like 500m, 2 or 1Gi, found {text!r}")
    number, exponent, unit = found.groups()
    return Decimal(number + (exponent or "")) * _UNITS[unit or ""]
