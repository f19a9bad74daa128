"""Quantities as Kubernetes writes them: `500m`, `2`, `1.5Gi`, `1e3`."""

import re
from decimal import ROUND_CEILING, ROUND_UP, Decimal, localcontext

MOST = Decimal(2**63 - 1)
_LEAST = Decimal("1e-9")
_UNITS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10**3), "M": Decimal(10**6),
    "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18), "Ki": Decimal(2**10), "Mi": Decimal(2**20),
    "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_FORM = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)",
)
# More digits than any amount within the bounds has, so that no text costs more to read than it is long.
_MARGIN_DIGITS = 40


class QuantityError(ValueError):
    """The text is no quantity, or none that is allowed there."""


def parse_quantity(text: str | int | float | Decimal) -> Decimal:
    """The amount, by the grammar of `resource.Quantity` in k8s.io/apimachinery: ASCII digits, and one of a binary unit, a decimal unit and
    an exponent of at most three digits. As there, what is finer than a billionth is rounded away from zero, and 2^63 - 1 is the most.

    Raises:
        QuantityError: the text is no quantity.
    """
    found = _FORM.fullmatch(str(text))
    if found is None or isinstance(text, bool):
        raise QuantityError(f"expected a quantity such as 500m, 2, 512Mi or 1e3, found {str(text)[:80]!r}")
    sign, digits, exponent, unit = found.groups()
    number = Decimal(digits)
    if not number:
        return Decimal(0)
    size = _bounded(number, int(exponent or 0), _UNITS[unit or ""])
    return -size if sign == "-" else size


def whole(text: str | int | float | Decimal, scale: int = 1) -> int:
    """`scale` times a quantity that is not negative, rounded up as Kubernetes does: `whole("100m", 1000)` is 100, `whole("1Ki")` 1024.

    Raises:
        QuantityError: no quantity, or a negative one.
    """
    amount = parse_quantity(text)
    if amount < 0:
        raise QuantityError(f"expected a quantity of 0 or more, found {str(text)[:80]!r}")
    with localcontext(prec=2 * _MARGIN_DIGITS):
        return int((amount * scale).to_integral_value(ROUND_CEILING))


def _bounded(number: Decimal, exponent: int, unit: Decimal) -> Decimal:
    magnitude = number.adjusted() + exponent + unit.adjusted()
    if magnitude > _MARGIN_DIGITS:
        return MOST
    if magnitude < -_MARGIN_DIGITS:
        return _LEAST
    with localcontext(prec=len(number.as_tuple().digits) + 2 * _MARGIN_DIGITS):
        return min((number.scaleb(exponent) * unit).quantize(_LEAST, ROUND_UP), MOST)
