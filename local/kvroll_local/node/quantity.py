"""Kubernetes quantities as whole numbers."""

import re
from decimal import ROUND_CEILING, Decimal

_FACTORS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10**3), "M": Decimal(10**6),
    "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18), "Ki": Decimal(2**10), "Mi": Decimal(2**20),
    "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_FORM = re.compile(r"(\+?\d+(?:\.\d*)?|\+?\.\d+)(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)


class QuantityError(ValueError):
    """The text is no quantity that a resource can have."""


def whole(text: str | int | float, scale: int = 1) -> int:
    """`scale` times the quantity, rounded up as Kubernetes does: `whole("100m", 1000)` is 100, `whole("1Ki")` 1024.

    Raises:
        QuantityError: no quantity, or a negative one.
    """
    found = _FORM.fullmatch(str(text).strip())
    if found is None:
        raise QuantityError(f"expected a quantity such as 500m, 2, 512Mi or 1e3, found {text!r}")
    number = Decimal(found[1] + (found[2] or "")) * _FACTORS[found[3] or ""]
    return int((number * scale).to_integral_value(ROUND_CEILING))
